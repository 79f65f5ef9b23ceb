"""`whichrank torchrun`: a run in a terminal, as it comes, and its failure told."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from forked import let_servers_be_forks
from support import FULL, HOUSE, wait_until

pytestmark = pytest.mark.processes

WHICHRANK = [sys.executable, "-m", "whichrank"]
# The same, but that torchrun is a fork of the tests' warm process: see forked.py.
FORKED = """
import os, sys
from whichrank.terminal.main import main
import forked

if forked.HOLDS_TORCH in os.environ:
    forked.torchruns()
sys.exit(main())
"""
HEAD = """
import os, signal, sys, time
rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
"""
WAITS = """
open(f"started{rank}", "w").close()
time.sleep(600)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that writes a program where nothing of ours lies."""
    let_servers_be_forks(monkeypatch)
    monkeypatch.chdir(tmp_path)

    def write(body: str) -> str:
        (tmp_path / "train.py").write_text(HEAD + textwrap.dedent(body))
        return "train.py"

    return write


def command(*words: object) -> list[str]:
    return [sys.executable, "-c", FORKED, *map(str, words)]


def whichrank(*words: object, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=120, **more
    )


def started(path: str, *options: object, **more) -> subprocess.Popen:
    """Start a run of two ranks; return when both are there."""
    words = command("torchrun", *options, "--nproc-per-node", 2, path)
    process = subprocess.Popen(words, **more)
    assert wait_until(lambda: all(os.path.exists(f"started{r}") for r in (0, 1)), 90)
    return process


def test_every_line_comes_with_its_rank(program):
    path = program("""
        for step in range(3):
            print(f"step {step}" if rank else f"[rank 0] step {step}", flush=True)
        print("careful", file=sys.stderr)
        print(sys.argv[1:], end="", flush=True)
    """)
    done = whichrank("torchrun", "--nproc-per-node", 2, path, "a b", "--timeout")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for rank in range(2):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        words = ["step 0", "step 1", "step 2", "['a b', '--timeout']"]
        assert mine == [f"[rank {rank}] {word}" for word in words]
        assert f"[rank {rank}] (stderr) careful" in done.stderr
    assert len(lines) == 8


def test_lines_come_while_the_run_goes_on(program):
    path = program(f"print('first', flush=True)\n{WAITS}")
    process = started(path, stdout=subprocess.PIPE, text=True)
    assert "first" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.wait(60)


def test_long_output_is_complete(program):
    path = program("""
        for i in range(60_000): print(f"{i} {'x' * 40}")
    """)
    done = whichrank("torchrun", "--nproc-per-node", 2, path)
    for rank in range(2):
        found = re.findall(rf"^\[rank {rank}\] (\d+) x{{40}}$", done.stdout, re.M)
        assert found == [str(i) for i in range(60_000)]


def test_a_failure_is_told_with_its_rank(program, tmp_path):
    path = program("""
        import json
        print(json.dumps({"loss": rank / 2}), flush=True)
        if rank == 1:
            raise ValueError("no such label")
        time.sleep(600)
    """)
    words = "--report", "run.json", "--nproc-per-node", 2, path
    words = [*WHICHRANK, "torchrun", *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "\nrank 1: ValueError: no such label\n  at train.py:" in done.stderr
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["exit_code"] == 1 and report["exit_codes"][1] == 1
    assert report["command"].endswith("--nproc-per-node 2 train.py")
    assert report["facts"] == [{"loss": 0.0}, {"loss": 0.5}]
    assert 0 < report["seconds"] < 120 and report["notes"] == []
    failure = report["failure"]
    assert (failure["kind"], failure["rank"]) == ("exception", 1)
    assert failure["where"].endswith('raise ValueError("no such label")')
    assert failure["line"] == 8
    assert set(failure) >= {"cause", "symptom", "means", "others", "stands"}
    assert {p.name for p in tmp_path.iterdir()} == {"train.py", "run.json"}


def test_the_exit_code_is_torchruns(program):
    assert whichrank("torchrun", "--no-such-option").returncode == 2
    path = program("sys.exit(3)")
    assert whichrank("python", path).returncode == 3
    path = program("os.kill(os.getpid(), signal.SIGKILL)")
    assert whichrank("python", path).returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["what"],
        ["torchrun"],
        ["torchrun", "--timeout", "soon", "train.py"],
        ["torchrun", "--timeout"],
        ["torchrun", "--report", "/no/such/folder/run.json", "train.py"],
        ["why", "train.py"],
        ["why", "1", "2"],
        ["why", "--seconds", "0"],
    ],
)
def test_a_command_that_cannot_be_understood(words):
    done = whichrank(*words)
    assert done.returncode == 2
    assert done.stderr and "Traceback" not in done.stderr


def test_why_without_a_job(program):
    done = whichrank("why", 2**22 + 1)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Python process" in done.stderr


def test_silence_ends_a_run_only_if_asked_to(program, survivors):
    path = program("print('begun', flush=True)\ntime.sleep(600)")
    done = whichrank("torchrun", "--timeout", 2, "--nproc-per-node", 2, path)
    assert done.returncode == 124
    # 10: five times as many from the start, which may take long on a busy machine.
    assert re.search("no end after (2|10) seconds", done.stderr)
    assert "time.sleep(600)" in done.stderr
    assert wait_until(lambda: survivors() == 0)


@pytest.mark.parametrize(
    "name, code",
    [
        ("SIGINT", 130),
        ("SIGTERM", 143),
        pytest.param("SIGHUP", 129, marks=FULL),
        pytest.param("SIGKILL", -9, marks=FULL),
    ],
)
def test_whatever_ends_it_nobody_stays(program, survivors, tmp_path, name, code):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    path = program(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAITS}")
    more = {"env": os.environ | {"TMPDIR": str(temporary)}}
    process = started(path, stderr=subprocess.PIPE, text=True, **more)
    process.send_signal(signal.Signals[name])
    said = process.communicate(timeout=60)[1]
    assert process.returncode == code
    if name == "SIGINT":
        assert "the run: stopped by hand; all processes were ended" in said
        for rank in range(2):
            assert re.search(rf"rank {rank}: stands at train.py.*: time.sleep", said)
    elif name != "SIGKILL":
        assert said == f"whichrank: asked to end by {name}, and ends the run\n"
    assert wait_until(lambda: survivors() == 0)
    assert wait_until(lambda: not list(temporary.glob("whichrank-*")))


@FULL
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_torchrun_that_is_asked_to_end_is_told(program, survivors, name):
    path = program(f"open(f'pid{{rank}}', 'w').write(str(os.getpid()))\n{WAITS}")
    process = started(path, stderr=subprocess.PIPE, text=True)
    proxy = psutil.Process(int(Path("pid0").read_text())).parent()
    proxy.parent().send_signal(signal.Signals[name])
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "Traceback" not in said
    assert f"the run: torchrun was asked to end by {name} (usually" in said
    for rank in range(2):
        assert re.search(rf"rank {rank}: stands at train.py.*: time.sleep", said)
    assert wait_until(lambda: survivors() == 0)


def test_a_closed_pipe_ends_the_run(program, survivors):
    path = program("""
        while True:
            print("more", flush=True)
            time.sleep(0.1)
    """)
    words = shlex.join(command("torchrun", "--nproc-per-node", 2, path))
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -n 3; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=90,
    )
    *lines, code = done.stdout.splitlines()
    assert len(lines) == 3 and code == "141" and "Traceback" not in done.stderr
    assert wait_until(lambda: survivors() == 0)


@FULL
@pytest.mark.parametrize("streams", ["<&-", ">&- 2>&-", "</dev/null >/dev/null"])
def test_streams_that_are_closed(program, streams, tmp_path):
    path = program("print('hello'); open(f'ended{rank}', 'w').close()")
    words = shlex.join(command("torchrun", "--nproc-per-node", 2, path))
    done = subprocess.run(["bash", "-c", f"{words} {streams}"], timeout=90)
    assert done.returncode == 0
    assert (tmp_path / "ended0").exists() and (tmp_path / "ended1").exists()


def in_terminal(words: list[str], **environment: str) -> str:
    """Return what a command prints to a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        words, stdin=its, stdout=its, stderr=its, env=os.environ | environment
    )
    os.close(its)
    text = b""
    while True:
        try:
            data = os.read(ours, 1000)
        except OSError:  # nobody holds the other end any more
            break
        text += data
    os.close(ours)
    assert process.wait() == 0
    return text.decode()


@pytest.mark.parametrize("no_color", ["", pytest.param("1", marks=FULL)])
def test_color_is_for_terminals(program, no_color):
    path = program("print('hello')")
    words = command("torchrun", "--nproc-per-node", 1, path)
    said = in_terminal(words, NO_COLOR=no_color)
    assert "hello" in said and ("\x1b[" in said) == (not no_color)


def test_of_a_progress_bar_the_last_state_is_shown(program):
    path = program("""
        for i in range(1000):
            sys.stderr.write(f"\\r{i} of 1000")
        sys.stderr.write("\\nready\\n")
    """)
    done = whichrank("torchrun", "--nproc-per-node", 1, path)
    lines = [line for line in done.stderr.splitlines() if "of 1000" in line]
    assert lines[-1] == "[rank 0] (stderr) 999 of 1000" and len(lines) < 4


@FULL
def test_on_a_second_machine_ranks_are_told_apart(program, free_port):
    path = program("print('hello', rank, flush=True); time.sleep(2)")
    at = "--master-addr", "127.0.0.1", "--master-port", free_port, "--nnodes", 2
    nodes = [
        subprocess.Popen(
            command("torchrun", *at, "--node-rank", node, path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in (0, 1)
    ]
    (out, err), (other, note) = (node.communicate(timeout=120) for node in nodes)
    assert (out, other) == ("[rank 0] hello 0\n", "[rank 0] hello 1\n")
    assert (err, note) == ("", "note: rank 0 here is rank 1 of the job\n")


def test_python_starts_its_ranks_itself(program):
    path = program("print('[rank 1] hello'); print('start', file=sys.stderr)")
    done = whichrank("python", path)
    assert (done.returncode, done.stdout) == (0, "[rank 1] hello\n")
    assert done.stderr == "start\n"


def test_the_command_is_installed():
    project = (HOUSE / "pyproject.toml").read_text()
    assert 'whichrank = "whichrank.terminal.main:main"' in project
    from whichrank.terminal.main import main

    assert callable(main)
    assert Path(main.__code__.co_filename).parent.name == "terminal"
