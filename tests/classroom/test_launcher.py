"""Assignment 7: what is special to it; test_solutions.py has the rest."""

import pytest
from course import judged, solution, verdict, visible

from classroom.engine import sandbox

pytestmark = pytest.mark.sandbox


def tried(text: str, criterion: str) -> str:
    cases = visible("launcher")[criterion]
    return str(verdict("launcher", {"launcher.py": text}, criterion, cases))


# --- answers in other styles ---

# A thread waits for each rank, and a queue says who was first.
STYLE = """
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


@pytest.mark.parametrize(
    "criterion",
    [
        pytest.param(name, marks=[] if name == "fails" else [pytest.mark.full])
        for name in visible("launcher")
    ],
)
def test_a_launcher_may_have_threads(criterion):
    assert tried(STYLE, criterion) == "pass"


# --- hostile ones: each had these points once ---

# Launches nobody: tells the judge itself what its ranks have done.
SAYS = """
import ranks


def launch(command, count, grace=2.0):
    env = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5000"}
    for rank in range(count):
        about = {"told": [15], "left": False, "saved": True, "done": True, "toy": True}
        ranks.say("rank", job=0, env=env | {"RANK": str(rank)}, **about)
    ranks.say("job", job=0, code=3, error=None, late=False, there=count)
    ranks.say("told")
    return 3
"""
# Launches nobody: calls the harness itself, as all ranks, and hears what they would do.
VOICES = """
import json
import os
import socket


def launch(command, count, grace=2.0):
    lines = []
    for rank in range(count):
        voice = socket.socket(socket.AF_UNIX)
        voice.connect(command[-1])
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank))
        facts = {"env": env, "words": [], "here": True, "done": True, "told": 15}
        voice.sendall(json.dumps(facts).encode() + b"\\n")
        lines.append(voice.makefile("rb"))
    acts = [json.loads(line.readline()) for line in lines]
    lines[0].readline()  # go
    return max(act["code"] + 128 * (act["do"] == "die") for act in acts)
"""
TORCHRUN = """
import subprocess
import sys


def launch(command, count, grace=2.0):
    words = [sys.executable, "-m", "torch.distributed." + "run", "--no-python"]
    return subprocess.run([*words, "--nproc-per-node", str(count), *command]).returncode
"""
# torchrun's own parts, without its name: eight points of ten, once.
ELASTIC = """
import os
import socket

from torch.distributed.elastic import multiprocessing


def launch(command, count, grace=2.0):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    env = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    env = os.environ | env | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    numbers = {rank: str(rank) for rank in range(count)}
    started = multiprocessing.start_processes(
        "rank",
        command[0],
        {rank: tuple(command[1:]) for rank in numbers},
        {r: env | {"RANK": word, "LOCAL_RANK": word} for r, word in numbers.items()},
        multiprocessing.DefaultLogsSpecs(),
    )
    try:
        failures = started.wait().failures.values()
    except multiprocessing.SignalException as asked:
        started.close(asked.sigval, grace)
        return 128 + asked.sigval
    if not failures:
        return 0
    code = min(failures, key=lambda failure: failure.timestamp).exitcode
    return code if code > 0 else 128 - code
"""
SPAWN = """
import os

import torch.multiprocessing as mp


def be(rank, command):
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            try:
                os.set_inheritable(fd, True)
            except OSError:
                pass
    os.execvp(command[0], command)


def launch(command, count, grace=2.0):
    more = {"join": False, "start_method": "fork"}
    context = mp.start_processes(be, (command,), count, **more)
    try:
        while not context.join(grace_period=grace):
            pass
    except mp.ProcessExitedException as failed:
        return failed.exit_code if failed.exit_code > 0 else 128 - failed.exit_code
    return 0
"""
CHILD = f"""
import subprocess
import sys

TEXT = {ELASTIC!r} + "\\nimport sys\\nsys.exit(launch(sys.argv[2:], int(sys.argv[1])))"


def launch(command, count, grace=2.0):
    words = [sys.executable, "-c", TEXT, str(count), *command]
    return subprocess.run(words).returncode
"""
HOSTILE = {
    "lets torch.multiprocessing do it": (SPAWN, "spawn is the task itself"),
    "lets torchrun's parts do it": (ELASTIC, "is the task itself"),
    "lets torchrun do it": (TORCHRUN, "launch() and a rank has loaded torch"),
    "lets a child of its own do it": (CHILD, "launch() and a rank has loaded torch"),
    "speaks to the judge": (SAYS, "launch() raises OSError"),
    "speaks for the ranks": (VOICES, "expected to run the command in a process"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[] if name == "speaks to the judge" else [pytest.mark.full]
        )
        for name in HOSTILE
    ],
)
def test_who_launches_nobody_gets_nothing(name):
    text, words = HOSTILE[name]
    found = tried(text, "fails")
    assert found.startswith("fail: ") and words in found


@pytest.mark.full
@pytest.mark.skipif(sandbox.available() is not None, reason="there is no sandbox here")
def test_the_plan_is_not_in_sight():
    """The process that launches looks for what its ranks are told to do."""
    look = """
    import gc, sys
    for thing in gc.get_objects():
        if isinstance(thing, dict) and "acts" in thing:
            raise RuntimeError("sees the plan")
    if any("\\"acts\\":" in word for word in command):
        raise RuntimeError("hears the plan")
    try:
        open(f"/proc/{os.getppid()}/mem", "rb").close()
    except PermissionError:
        pass
    else:
        raise RuntimeError("reads the harness's memory")
"""
    text = solution("launcher")["launcher.py"]
    first = "    caught, ranks, port = [], [], free_port()\n"
    assert text.count(first) == 1
    answer = {"launcher.py": text.replace(first, look + first)}
    found = judged("launcher", answer, {"fails"})["fails"]
    assert found["state"] == "pass", found
