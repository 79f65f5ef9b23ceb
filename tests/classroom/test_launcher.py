"""Assignment 6: what is special to it; test_solutions.py has the rest."""

import pytest
from course import some, verdict, visible

pytestmark = pytest.mark.sandbox


def tried(text: str, criterion: str) -> str:
    cases = visible("launcher")[criterion]
    return str(verdict("launcher", {"launcher.py": text}, criterion, cases))


# --- answers in other styles ---

# A thread waits for each rank, and a queue says which was first.
THREADS = """
import os
import queue
import signal
import socket
import subprocess
import threading
import time


def launch(command, count, grace=2.0):
    news = queue.Queue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: news.put(("signal", number)))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    mine = dict(os.environ, WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
    mine.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    ranks = []
    for rank in range(count):
        own = dict(mine, RANK=str(rank), LOCAL_RANK=str(rank))
        process = subprocess.Popen(command, env=own)
        ranks.append(process)
        threading.Thread(target=lambda p=process: news.put(("end", p.wait()))).start()
    left, code, asks = count, 0, None
    while left and not asks:
        try:
            what, number = news.get(timeout=0.1)  # signals are heard in between
        except queue.Empty:
            continue
        if what == "signal":
            asks, code = number, 128 + number
        else:
            left -= 1
            if number:
                asks = signal.SIGTERM
                code = number if number > 0 else 128 - number
    if asks:
        for process in ranks:
            if process.poll() is None:
                process.send_signal(asks)
        last = time.monotonic() + grace
        while time.monotonic() < last and any(p.poll() is None for p in ranks):
            time.sleep(0.01)
        for process in ranks:
            process.kill()
            process.wait()
    return code
"""


# Everything comes as an event, and nothing is lost when a handler raises.
EVENTS = """
import asyncio
import os
import signal
import socket


async def be(command, count, grace):
    loop = asyncio.get_running_loop()
    asked = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(
            number, lambda n=number: asked.done() or asked.set_result(n)
        )
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    mine = dict(os.environ, WORLD_SIZE=f"{count}", LOCAL_WORLD_SIZE=f"{count}")
    mine.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=f"{port}")
    ranks = []
    for rank in range(count):
        own = dict(mine, RANK=f"{rank}", LOCAL_RANK=f"{rank}")
        ranks.append(await asyncio.create_subprocess_exec(*command, env=own))
    ends = {asyncio.create_task(process.wait()) for process in ranks}
    code = number = 0
    while ends and not number:
        done, _ = await asyncio.wait({asked, *ends}, return_when="FIRST_COMPLETED")
        ends -= done
        if asked in done:
            number, code = asked.result(), 128 + asked.result()
        elif codes := [end.result() for end in done if end.result()]:
            number = signal.SIGTERM
            code = codes[0] if codes[0] > 0 else 128 - codes[0]
    left = [process for process in ranks if process.returncode is None]
    for process in left:
        process.send_signal(number)
    if ends:
        await asyncio.wait(ends, timeout=grace)
    for process in left:
        if process.returncode is None:
            process.kill()
    for end in ends:
        await end
    return code


def launch(command, count, grace=2.0):
    return asyncio.run(be(command, count, grace))
"""
# No library at all: fork, exec and wait.
FORKS = """
import os
import signal
import socket
import time


def launch(command, count, grace=2.0):
    asked, code, pids = [], 0, set()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked.append(number))
    probe = socket.create_server(("", 0))
    port = probe.getsockname()[1]
    probe.close()
    for rank in range(count):
        if pid := os.fork():
            pids.add(pid)
            continue
        names = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
        names |= {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        os.environ.update({name: str(value) for name, value in names.items()})
        os.environ["MASTER_ADDR"] = "localhost"
        os.execvp(command[0], command)
    last = None
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        pids.discard(pid)
        if pid and status and not last:
            died = os.WIFSIGNALED(status)
            code = 128 + os.WTERMSIG(status) if died else os.WEXITSTATUS(status)
        if asked and not last:
            code = 128 + asked[0]
        if code and not last:
            last = time.monotonic() + grace
            for left in pids:
                os.kill(left, asked[0] if asked else signal.SIGTERM)
        elif last and time.monotonic() > last:
            for left in pids:
                os.kill(left, signal.SIGKILL)
        if not pid:
            time.sleep(0.01)
    return code
"""
STYLES = {"threads": THREADS, "events": EVENTS, "forks": FORKS}


@pytest.mark.parametrize("criterion", some(visible("launcher"), "together"))
@pytest.mark.parametrize("name", some(STYLES, "forks"))
def test_a_launcher_may_be_written_otherwise(name, criterion):
    assert tried(STYLES[name], criterion) == "pass"


SPAWN = """
import torch.multiprocessing as mp


def launch(command, count, grace=2.0):
    mp.start_processes(print, (command,), count)
"""


@pytest.mark.full
def test_the_library_s_own_is_refused():
    assert "spawn is the task itself" in tried(SPAWN, "fails")
