"""No process of a run outlives it: whatever it does, and whoever is killed meanwhile.

A process can leave its session, its group, its parent and its environment behind. So
those that the programs here start write down their own numbers, and ranks the mark of
their run.
"""

import resource
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from forked import let_servers_be_forks, let_torchrun_be_a_fork
from launched import python, torchrun
from support import FULL, HOUSE, WARM, wait_until, words_of

from whichrank.run.channels import LENT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]

HEAD = """
import multiprocessing, os, resource, signal, subprocess, sys, time

rank, folder = int(os.environ.get("RANK", 0)), sys.argv[1]

def stay(*_):
    open(f"{folder}/{os.getpid()}", "w").close()
    time.sleep(600)

def fork_and(leave):
    if os.fork() == 0:
        leave()
        stay()

def change_group():
    os.setpgrp()
    stay()

def become_a_daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.chdir("/")
    for number in range(3):
        os.close(number)
    code = f"import os, time; open(f'{folder}/{{os.getpid()}}', 'w'); time.sleep(600)"
    os.execve(sys.executable, ["python", "-ISc", code], {})

def no_environment():
    words = f'echo > "{folder}/$$"; exec sleep 600'
    subprocess.Popen(["sh", "-c", words], env={}, start_new_session=True)

def a_child_that_changes_its_group():
    context = multiprocessing.get_context("fork")
    context.Process(target=change_group, daemon=True).start()

def escape():
    with open(f"{folder}/{os.getpid()}", "w") as file:
        file.write(str(resource.getrlimit(resource.RLIMIT_RTTIME)[0]))  # see guard.py
    fork_and(os.setsid)
    fork_and(os.setpgrp)
    fork_and(become_a_daemon)
    no_environment()
    a_child_that_changes_its_group()
    while len(os.listdir(folder)) < 6 * int(os.environ.get("WORLD_SIZE", 1)):
        time.sleep(0.01)
    print("all are there", flush=True)

"""
SIGNED = 6  # processes, of each rank: itself, and those that have escaped
ENDS = {
    "success": "",
    "failure": "if rank == 1: raise ValueError('no')\ntime.sleep(600)",
    "timeout": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)",
}
COLD = pytest.mark.parametrize(
    "cold",
    [pytest.param(False, id="warm"), pytest.param(True, id="cold", marks=FULL)],
)


@pytest.fixture(autouse=True)
def forks(monkeypatch):
    """Let the warm processes of these tests be forks."""
    let_servers_be_forks(monkeypatch)


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program whose ranks escape, and then `end`."""

    def write(end: str) -> str:
        path = tmp_path / "escapes.py"
        path.write_text(f"{HEAD}\nescape()\n{end}\n")
        return str(path)

    return write


@pytest.fixture
def escaped(tmp_path):
    """Return the folder in which those that have escaped leave their numbers."""
    folder = tmp_path / "escaped"
    folder.mkdir()
    yield folder
    for process in alive(folder):
        process.kill()


def alive(folder: Path) -> list[psutil.Process]:
    """Return the living ones of the processes that have left a number in `folder`."""
    found = []
    for path in folder.iterdir():
        try:
            process = psutil.Process(int(path.name))
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def left(folder: Path) -> list[psutil.Process]:
    """Return these, and whoever has the mark of their run: torchrun, say."""
    marks, found = {*map(Path.read_text, folder.iterdir())} - {""}, []
    if living := alive(folder):
        return living
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            mark, _ = resource.prlimit(process.pid, resource.RLIMIT_RTTIME)
            if str(mark) in marks and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


# --- the run ends ---


@pytest.mark.parametrize(
    "end, cold",
    [
        *[pytest.param(end, False, id=f"{end}-warm") for end in ENDS],
        pytest.param("failure", True, id="failure-cold"),
        pytest.param("success", True, id="success-cold", marks=FULL),
        pytest.param("timeout", True, id="timeout-cold", marks=FULL),
    ],
)
def test_nobody_escapes_a_run_that_ends(program, escaped, end, cold, monkeypatch):
    let_torchrun_be_a_fork(monkeypatch)
    command = f"--nproc-per-node 2 {program(ENDS[end])} {escaped}"
    run = torchrun(command, cold=cold, timeout=5, expect_failure=end != "success")
    assert run.lines == [["all are there"]] * 2
    assert len(list(escaped.iterdir())) == 2 * SIGNED
    assert left(escaped) == []


@pytest.mark.parametrize("end", [pytest.param("success", marks=FULL), "timeout"])
@COLD
def test_nobody_escapes_a_program_that_starts_its_ranks_itself(
    program, escaped, end, cold
):
    failing = end != "success"
    command = f"{program(ENDS[end])} {escaped}"
    python(command, cold=cold, timeout=5, expect_failure=failing)
    assert len(list(escaped.iterdir())) == SIGNED
    assert left(escaped) == []


# --- somebody is killed ---

CALLER = """
import sys
from launched import torchrun
import forked
forked.servers()
try:
    torchrun(f"--nproc-per-node 2 {sys.argv[1]} {sys.argv[2]}", cold=len(sys.argv) > 3)
except Exception as failed:
    print(failed, flush=True)
"""


@pytest.fixture
def launched(program, escaped, monkeypatch):
    """Return a function: a caller in a process of its own, whose ranks have escaped."""
    monkeypatch.delenv(LENT, raising=False)
    callers = []

    def launch(cold: bool) -> psutil.Process:
        words = [program(ENDS["timeout"]), str(escaped)] + ["cold"] * cold
        command = [sys.executable, "-c", CALLER, *words]
        caller = subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, text=True)
        callers.append(caller)
        assert wait_until(lambda: len(alive(escaped)) == 2 * SIGNED, 60)
        return psutil.Process(caller.pid)

    yield launch
    for caller in callers:
        caller.kill()
        caller.communicate()


def found(words: str, caller: psutil.Process | None = None) -> list[psutil.Process]:
    """Return what `pkill -f WORDS` finds of all that the caller (we) has started."""
    started = (caller or psutil.Process()).children(recursive=True)
    kept = WARM.process and WARM.process.pid  # that of all tests
    return [p for p in started if words in " ".join(words_of(p)) and p.pid != kept]


@COLD
def test_nobody_escapes_when_the_caller_is_killed(launched, escaped, survivors, cold):
    launched(cold).kill()
    assert wait_until(lambda: not left(escaped) and survivors() == 0)


def test_nobody_escapes_when_caller_and_guard_are_killed(launched, escaped, survivors):
    caller = launched(cold=False)
    guards = found("guard.py", caller)
    caller.suspend()  # or it might notice the guard's end
    for process in guards:
        process.kill()
    caller.kill()
    assert wait_until(lambda: not left(escaped) and survivors() == 0)


# What the ranks depend on is killed: the launcher says so, and nobody stays.
KILLED = {
    "guard": ("guard.py", "the guard of this run was ended by SIGKILL from outside"),
    "torchrun": ("torch.distributed.run", "torchrun itself was ended by SIGKILL"),
    "warm": ("fork_server.py", "the warm process, which is the parent of torchrun and"),
}


@pytest.fixture
def kill(escaped):
    """Return a function that runs a program and kills whoever has these words."""

    def launch(command: str, words: str, ready, cold: bool):
        victims, struck = [], []

        def strike():
            if wait_until(ready, 60):
                time.sleep(0.3)  # as a person would
                struck.append(time.monotonic())
                victims.extend(found(words))
                for process in victims:
                    process.kill()

        killer = threading.Thread(target=strike)
        killer.start()
        run = torchrun(command, cold=cold, timeout=120, expect_failure=True)
        killer.join()
        assert victims, f"nobody has the words {words!r}"
        assert time.monotonic() - struck[0] < 100, "it was told at the timeout only"
        return run

    return launch


@pytest.mark.parametrize(
    "what, cold",
    [
        ("guard", False),
        pytest.param("guard", True, marks=FULL),
        ("torchrun", False),
        ("torchrun", True),
        ("warm", False),
    ],
)
def test_whoever_the_ranks_depend_on_is_killed(
    kill, warm, program, escaped, survivors, what, cold
):
    words, told = KILLED[what]
    command = f"--nproc-per-node 2 {program(ENDS['timeout'])} {escaped}"

    def ready():
        return len(alive(escaped)) == 2 * SIGNED

    run = kill(command, words, ready, cold)
    assert (run.failure.kind, run.failure.rank) == (what, None)
    assert told in run.failure.cause
    assert left(escaped) == []
    warm.stop()
    assert wait_until(lambda: survivors() == 0, 3)


def test_the_guard_is_not_found_by_what_it_runs(program, escaped):
    path, seen = program(""), []

    def watch(run):
        words = [path, "torch.distributed.run", str(escaped)]
        guards = found("guard.py")
        seen.extend(g for g in guards if any(w in " ".join(words_of(g)) for w in words))
        watched.extend(guards)

    watched = []
    torchrun(f"--nproc-per-node 1 {path} {escaped}", watch=watch)
    assert watched and not seen


def test_the_next_run_has_a_new_warm_process(kill, warm, program, escaped):
    command = f"--nproc-per-node 2 {program(ENDS['timeout'])} {escaped}"
    run = kill(command, "fork_server.py", lambda: alive(escaped), cold=False)
    assert "the next run starts a new one" in run.failure.cause
    empty = escaped.parent / "empty.py"
    empty.write_text("print('works')")
    again = torchrun(f"--nproc-per-node 2 {empty}")
    assert again.lines == [["works"]] * 2
    assert not any("warm" in note for note in again.notes)
