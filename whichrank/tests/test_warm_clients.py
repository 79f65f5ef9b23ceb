"""A client of the fork server may die at any time, and nobody else notices."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest
from forked import let_servers_be_forks
from support import wait_until

from whichrank import Warm
from whichrank.run import fork_server
from whichrank.run import warm as warm_start
from whichrank.run.here import environment

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="no warm start here"),
]


@pytest.fixture
def forks(monkeypatch):
    """Let the fork servers of these tests be forks themselves."""
    let_servers_be_forks(monkeypatch)


@pytest.fixture
def warm(forks, warm):
    """A fork server of this test's own, ready to fork."""
    assert warm.python(environment()), warm.trouble
    return warm


def ask(warm: Warm, words: bytes, sent: bytes | None) -> socket.socket:
    """Announce a request of `words`, and send as much of it as `sent`."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(warm.folder / "socket"))
    if sent is not None:
        socket.send_fds(client, [len(words).to_bytes(8, "big")], [0, 1, 2])
        client.sendall(sent)
    return client


def test_a_client_that_dies_takes_nobody_with_it(warm, tmp_path):
    (tmp_path / "nothing.py").write_text("")
    words = b"\0".join([bytes(tmp_path), b"1", b"nothing.py"])
    for sent in (None, b"", words[:3], words):
        ask(warm, words, sent).close()
        with ask(warm, words, words) as next_one:
            next_one.settimeout(20)
            assert int(next_one.makefile().readline()) > 0


def test_no_program_outlives_its_client(warm, tmp_path):
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(600)")
    words = b"\0".join([bytes(tmp_path), b"1", b"sleeps.py"])
    for _ in range(5):  # the client dies while its program is being forked
        ask(warm, words, words).close()
    server = psutil.Process(warm.process.pid)
    assert wait_until(lambda: not server.children()), server.children()


def test_a_program_that_has_no_session_yet_is_killed_as_well():
    # A fork begins its session itself, a moment after the server knows of it.
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        fork_server._kill(program.pid)
        assert program.wait(10) == -signal.SIGKILL
    finally:
        program.kill()


def test_a_server_that_is_never_ready_is_not_waited_for(monkeypatch, tmp_path):
    server = tmp_path / "server.py"
    server.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(warm_start, "FORK_SERVER", server)
    monkeypatch.setattr(warm_start, "IMPORT_WAIT", 0.4)
    fresh, env = Warm(), environment()
    try:
        folder = fresh._start(env, warm_start.settings_in(env))
        assert fresh._await(folder, None).startswith("the fork server was not ready")
    finally:
        fresh.process.kill()
        fresh.stop()
        shutil.rmtree(folder)


def test_two_threads_start_one_server(monkeypatch, tmp_path):
    server = tmp_path / "server.py"
    server.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(warm_start, "FORK_SERVER", server)
    fresh, env, started = Warm(), environment(), []
    begin = fresh._start

    def slowly(*given):
        started.append(given)
        time.sleep(0.2)
        return begin(*given)

    monkeypatch.setattr(fresh, "_start", slowly)
    threads = [threading.Thread(target=fresh.start, args=(env,)) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(started) == 1
    finally:
        fresh.process.kill()
        fresh.stop()


OWNER = """
import os, subprocess, time
from launched import WARM

WARM.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # ends as a server does
if os.fork() == 0:
    time.sleep(600)  # as a DataLoader's worker does, or what a cell has started
print(WARM.process.pid, flush=True)
time.sleep(600)
"""


def test_no_server_outlives_its_owner_who_has_forked():
    words = [sys.executable, "-c", OWNER]
    owner = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        server = psutil.Process(int(owner.stdout.readline()))
        os.kill(owner.pid, signal.SIGKILL)
        assert wait_until(lambda: not server.is_running(), 90), "it still serves"
    finally:
        os.killpg(owner.pid, signal.SIGKILL)
        owner.communicate()
