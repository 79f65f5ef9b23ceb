"""What only a living process can show: that the explanation comes, and nobody stays.

What is explained, and how, test_evidence.py tells from what such runs left behind. Here
the faults of faults.py really happen again.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from faults import FAULTS, TORCHRUN
from launched import python, torchrun
from record_evidence import Recording, happen
from support import FULL, HOUSE, wait_until

from whichrank import RunFailed
from whichrank.record import names
from whichrank.run import probe, told
from whichrank.run.channels import TELL

pytestmark = pytest.mark.processes
ODD = 1  # the rank that misbehaves
RANKS = pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FULL)])
# One of each kind happens whenever the tests run; the others in make test-all.
ALWAYS = ("raises", "dies_by_sigkill", "exit_with_words", "different_calls")
ALWAYS += ("waits_in_its_except",)


def cases():
    """Return all faults but the clinic's (test_clinic.py); most only in test-all."""
    for fault in FAULTS:
        if fault.name.startswith("clinic_") or sys.version_info < fault.since:
            continue
        for ranks in fault.ranks:
            often = fault.name in ALWAYS and ranks == fault.recorded
            marks = [] if often else [FULL]
            yield pytest.param(fault, ranks, marks=marks, id=f"{fault.name}-{ranks}")


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program with one misbehaviour in it."""

    def write(body: str) -> Path:
        indented = "\n".join("    " + line for line in body.strip().splitlines())
        path = tmp_path / "sick.py"
        path.write_text(TORCHRUN.format(body=indented))
        return path

    return write


@pytest.fixture
def fail(program, survivors):
    """Return a function that runs a misbehaviour and returns the failed run."""

    def run(body: str, ranks: int, **options):
        path = program(body)
        options = {"timeout": 4, "expect_failure": True} | options
        result = torchrun(f"--nproc-per-node {ranks} {path}", **options)
        # A killed process is there until the system has taken it down.
        assert wait_until(lambda: nobody_left(survivors, result.facts))
        return result

    return run


def nobody_left(survivors, facts: list[dict]) -> bool:
    """Tell whether no process of a run is alive, by mark and by process group."""
    groups = {group for each in facts if (group := each.get("process_group"))}
    alive = [pid for pid in psutil.pids() if _group(pid) in groups]
    return not alive and survivors() == 0


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def number_of(path: Path, text: str) -> int:
    """Return the number of the one line of `path` that holds `text`."""
    lines = path.read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if text in line]
    assert len(found) == 1
    return found[0]


# --- faults ---


@pytest.mark.parametrize("fault, ranks", list(cases()))
def test_a_fault_that_happens_is_explained_as_the_kept_one(
    fault, ranks, tmp_path, survivors
):
    recording, run = happen(fault, ranks, tmp_path)
    assert wait_until(lambda: nobody_left(survivors, run.facts))
    if ranks == fault.recorded:
        told = recording.explain(tmp_path / "now")
        kept = Recording.load(fault).explain(tmp_path / "kept")
        assert not kept.differences(told)


COLD = pytest.mark.parametrize("cold", [False, pytest.param(True, marks=FULL)])

# Two processes in sessions of their own, which no signal to a group reaches.
STARTS = """
import json, os, subprocess, sys, time

sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
started = [subprocess.Popen(sleeps, start_new_session=True) for _ in "ab"]
print("[rank 1] is here", flush=True)
print(json.dumps({"rank": 0, "home": os.environ.get("WHICHRANK_HOME", "")}), flush=True)
"""


@COLD
@pytest.mark.parametrize(
    "end, kind, cause, line",
    [
        ("", None, "", ""),
        ("raise ValueError('no')", "exception", "ValueError: no", "raise ValueError"),
        ("time.sleep(600)", "timeout", "no end after 4 seconds", ""),
        *(
            pytest.param(*row, marks=FULL)
            for row in (
                ("sys.exit(3)", "exit", "exit code 3", "sys.exit(3)"),
                ("os._exit(5)", "exit", "exit code 5", ""),
                ("os.kill(os.getpid(), 9)", "signal", "ended by SIGKILL", ""),
            )
        ),
    ],
)
def test_plain_python_tells_how_it_ended_and_leaves_nothing(
    tmp_path, survivors, cold, end, kind, cause, line
):
    path = tmp_path / "plain.py"
    path.write_text(STARTS + end)
    run = python(path.as_posix(), cold=cold, timeout=4, expect_failure=bool(kind))
    assert run.lines == [[], ["[rank 1] is here"]]
    assert run.facts == [{"rank": 0, "home": ""}, {}]
    assert wait_until(lambda: survivors() == 0, 3)
    if kind is None:
        assert (run.failure, run.notes, run.exit_codes) == (None, [], [0, 0])
        return
    failure = run.failure
    assert (failure.kind, failure.rank) == (kind, None)
    assert failure.cause.startswith(cause)
    assert failure.line == (number_of(path, line) if line else None)
    if kind == "timeout":
        assert failure.others[1] == "last printed '[rank 1] is here'"


def test_a_stopped_rank_is_looked_at_and_left_as_it_is():
    code = "import os, time\nos.kill(os.getpid(), 19)\ntime.sleep(600)"
    stopped = subprocess.Popen([sys.executable, "-c", code])
    try:
        assert wait_until(lambda: probe.is_stopped(stopped.pid))
        ((_, frames),) = probe.threads(stopped.pid)
        assert [frame.line for frame in frames] == [2]
        assert probe.is_stopped(stopped.pid)
    finally:
        stopped.kill()
        stopped.wait()


ITS_OWN = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))"  # as Lightning's


@pytest.mark.parametrize("handler", ["pass", ITS_OWN])
def test_without_py_spy_the_ranks_tell_where_they_stand(
    fail, tmp_path, monkeypatch, handler
):
    monkeypatch.setattr(probe, "py_spy", lambda: None)
    run = fail(f"{handler}\nif odd: time.sleep(600)\ndist.all_reduce(tensor)", 2)
    assert (run.failure.rank, run.failure.symptom) == (ODD, "absent")
    assert run.failure.line == number_of(tmp_path / "sick.py", "time.sleep(600)")
    assert "waits in all_reduce" in run.failure.others[0]
    assert run.notes == [probe.MISSING]


def test_who_may_not_be_looked_at_is_told(fail, tmp_path, monkeypatch):
    refuses = tmp_path / "py-spy"
    refuses.write_text(
        "#!/bin/sh\necho Error: Permission Denied: Try running again >&2\n"
    )
    refuses.chmod(0o755)
    monkeypatch.setattr(probe, "py_spy", lambda: str(refuses))
    run = fail(f"{ITS_OWN}\nif odd: time.sleep(600)\ndist.all_reduce(tensor)", 2)
    assert (run.failure.rank, run.notes) == (ODD, [probe.FORBIDDEN])


ANOTHER = """
import os, signal, sys
from whichrank.run.inside import answers
from pathlib import Path
answers.open_up(Path(sys.argv[1]))
{then}
"""
WAITS = "import time; print('waits', flush=True); time.sleep(600)"
TAKES = f"signal.signal({TELL}, lambda *_: os._exit(1))"


@pytest.mark.parametrize(
    "then, tells",
    [
        (WAITS, True),
        (f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}", True),
        (f"os.execv(sys.executable, [sys.executable, '-c', {WAITS!r}])", False),
        (f"signal.signal({TELL}, signal.SIG_DFL); {WAITS}", False),
        (f"{TAKES}; os.closerange(3, 99); {WAITS}", False),
    ],
    ids=["waits", "ignores SIGTERM", "execs", "resets the signal", "takes the signal"],
)
def test_only_who_has_registered_is_asked_by_a_signal(tmp_path, then, tells):
    """Another program would be killed by it."""
    program = [sys.executable, "-c", ANOTHER.format(then=then), str(tmp_path)]
    rank = subprocess.Popen(program, stdout=subprocess.PIPE)
    try:
        assert rank.stdout.readline() == b"waits\n"
        told.ask(rank.pid, tmp_path / names.STACK)
        assert bool((tmp_path / names.STACK).read_text()) == tells
        assert rank.poll() is None
    finally:
        rank.kill()
        rank.communicate()


def test_communication_keeps_a_silent_run_alive(program):
    path = program("for step in range(40):\n    time.sleep(0.2)\n    dist.barrier()")
    run = torchrun(f"--nproc-per-node 2 {path}", timeout=3)
    assert run.seconds > 6


def test_a_note_is_told(program):
    path = program("dist.barrier()\nif odd: dist.destroy_process_group = lambda: None")
    run = torchrun(f"--nproc-per-node 2 {path}")
    assert run.failure is None
    assert [note for note in run.notes if "rank 1 ended without" in note]


# --- the caller stops the run ---

CALLER = """
import sys
from launched import torchrun
try:
    torchrun(f"--nproc-per-node {sys.argv[2]} {sys.argv[1]}")
except KeyboardInterrupt as stopped:
    print(stopped, flush=True)
    print("the caller goes on", flush=True)
"""


@RANKS
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(program, survivors, tmp_path, ranks, times):
    flag = f"open('{tmp_path}/' + str(rank), 'w').close()\n"
    path = program(flag + "if odd: time.sleep(600)\ndist.all_reduce(tensor)")
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, path, str(ranks)],
        cwd=HOUSE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert wait_until(lambda: len(list(tmp_path.glob("[0-9]"))) == ranks, 60)
    time.sleep(0.5)  # until they stand still
    for _ in range(times):
        caller.send_signal(signal.SIGINT)
        time.sleep(0.05)
    said, _ = caller.communicate(timeout=30)
    assert "the caller goes on" in said
    assert "stopped by hand" in said
    if times == 1:
        stands = number_of(path, "time.sleep(600)")
        assert f"rank 1: stands at {path}:{stands}" in said
        assert said.count("waits in all_reduce") == ranks - 1
    assert survivors() == 0


# --- the machine ---


@FULL
def test_ten_launches_at_once_do_not_collide(program, survivors):
    path = program("assert tensor.sum() == 8")

    def launch(number: int):
        ranks = 2 + number % 3
        return ranks, torchrun(f"--nproc-per-node {ranks} {path}")

    with ThreadPoolExecutor(10) as pool:
        runs = list(pool.map(launch, range(10)))
    for ranks, run in runs:
        assert run.lines == [[f"[rank {rank}] is here"] for rank in range(ranks)]
    assert survivors() == 0


# --- what a run writes ---

LONG = {
    "lines": "for i in range(2_000_000):\n    print('0123456789' * 10)",
    "one line": "for i in range(500):\n    sys.stdout.write('0123456789' * 10_000)",
    "no text": "for i in range(1000):\n    os.write(1, bytes(range(256)) + b'\\n')",
}


@RANKS
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("lines", marks=FULL),
        pytest.param("one line", marks=FULL),
        "no text",
    ],
)
def test_a_long_output_is_read(program, ranks, kind):
    run = torchrun(f"--nproc-per-node {ranks} {program(LONG[kind])}")
    assert run.lines[-1][0].startswith(f"[rank {ranks - 1}] is here")


def test_no_room_for_the_logs_is_told(program, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(
        RunFailed, match="the launcher cannot keep its logs in /proc/now"
    ):
        torchrun(f"--nproc-per-node 2 {program('pass')}")


# --- the exit race ---

# An optimizer loads torch._dynamo, nothing is destroyed, and the last collective comes
# right before the end: on a plain exit, gloo aborts such a process now and then.
RACE = """
optimizer = torch.optim.SGD([torch.nn.Parameter(tensor)], lr=0.1)
optimizer.step()
dist.all_reduce(tensor)
print("done", flush=True)
{end}
os.environ["done"] = "yes"
dist.barrier()
if os.environ["done"]: sys.exit()
"""


MANY = pytest.mark.parametrize("many", [4, pytest.param(100, marks=FULL)])


def in_parallel(path: Path, runs: int, **options) -> list:
    with ThreadPoolExecutor(4) as pool:
        command = f"--nproc-per-node 2 {path}"
        return list(pool.map(lambda _: torchrun(command, **options), range(runs)))


@MANY
def test_a_run_that_has_done_its_work_is_never_called_failed(program, many):
    runs = in_parallel(program(RACE.format(end="")), many)
    assert all(run.failure is None and run.exit_codes == [0, 0] for run in runs)


@MANY
def test_a_run_that_died_early_is_never_called_a_success(program, many):
    end = "if odd: os.abort()"  # after its last word, as the race does
    runs = in_parallel(program(RACE.format(end=end)), many, expect_failure=True)
    assert {(run.failure.kind, run.failure.rank) for run in runs} == {("signal", ODD)}
