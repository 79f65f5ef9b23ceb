"""A verdict does not depend on load: who is kept from working is judged again."""

import gc
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from course import RING, UNSAFE, box, changed, solution, some, verdict

from classroom.engine import judge, rig, runner
from classroom.engine.assignment import Criterion
from classroom.engine.check import try_case
from classroom.engine.modules import parsed
from classroom.engine.rig import Outcome, Rig
from classroom.engine.runner import Look, hindered
from whichrank import RunFailed
from whichrank.run.limits import Limits

pytestmark = pytest.mark.sandbox
CASE = {"ranks": 2, "length": 8, "seed": 1}


class Silent(Rig):
    """A rig whose runs end in silence, and at first others have had the cores."""

    def __init__(self, times: int):
        super().__init__(RING, solution("ring"))
        self.times, self.asked = times, []

    def _once(self, header, inputs, *more) -> Outcome:
        self.asked.append((header["timeout"], header["enough"], header["quiet"]))
        self.times -= 1
        silent = Outcome([{}] * 2, "no end", events=[[], []])
        silent.starved = self.times >= 0
        return silent


def test_a_silent_run_that_others_hindered_is_judged_again_and_alone():
    silent = Silent(1)
    assert str(try_case(silent, "right", CASE)) == "fail: no end"
    enough = 20 * rig.ENOUGH
    assert silent.asked == [(20, enough, False), (20 * rig.LONGER, enough, True)]


def test_it_is_blocked_if_they_never_let_it_and_so_is_its_criterion_at_once():
    silent = Silent(100)
    state, lines = judge._try(silent, Criterion("right", 1, [CASE, CASE]))
    assert state == "blocked" and len(lines) == 1 and "too busy" in lines[0]
    assert len(silent.asked) == 2


# --- in 20 seconds of two cores: what each thread has run and waited, how long the
# --- cores have worked, and for how long others were in its way

LOOKS = {
    "waits for a message": ([(0.1, 0.2), (0.0, 0.1)], 40, 0.2),
    "the same, with a hundred threads": ([(0.0, 0.3)] * 100, 40, 0.3),
    "computes, and nobody else does": ([(20, 0.0)], 20, 0),
    "computes, and others have nearly all": ([(2, 18)], 40, 18),
    "computes on a core that it shares with another": ([(10, 10)], 40, 10),
    "its ranks wait for each other": ([(10, 10)] * 4, 40, 0),
    "its own child has its core": ([(0.1, 19.9), (19.9, 0.1)], 20, 0),
    "the same, and others have the second": ([(0.1, 19.9), (19.9, 0.1)], 40, 10),
    "has ended": ([], 40, 0),
}


@pytest.mark.parametrize("name", LOOKS)
def test_who_has_hindered_a_run(name):
    threads, busy, expected = LOOKS[name]
    first = Look(100, 1000, {str(n): (5.0, 7.0) for n in range(1, len(threads))})
    seen = {}
    for n, (ran, waited) in enumerate(threads):
        before = first.threads.get(str(n), (0, 0))  # the first one is new
        seen[str(n)] = ran + before[0], waited + before[1]
    found = hindered(first, Look(120, 1000 + busy, seen))
    assert found == pytest.approx(expected, abs=0.2)


def test_what_counts_is_the_silence_and_not_the_questions_after_it(monkeypatch):
    """Eight ranks are asked where they stand, which takes long on a busy machine."""
    now, failure = [0.0], SimpleNamespace(kind="timeout", report=lambda **_: "no end")
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(runner, "look", lambda *_: Look(now[0], 2 * now[0], seen()))

    def seen() -> dict:
        """It works for 40 seconds, has no core in the next 40, then waits."""
        return {"1": (min(now[0], 40), min(max(now[0] - 40, 0), 40))}

    def torchrun(command, watch, **more):
        run = SimpleNamespace(code=None, exit_codes=[], failure=failure)
        for now[0] in range(80):
            watch(run)
        now[0], run.code = 200, 1
        watch(run)
        raise RunFailed("no end", run)

    monkeypatch.setattr("whichrank.launch.torchrun", torchrun)
    header = {"ranks": 8, "timeout": 38, "enough": 20}
    assert runner.launch(header, Path("/nowhere"), Limits())["starved"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts this")
def test_the_system_tells_who_waits_for_a_core():
    first = runner.look(False, {})
    with crowd(2 * (os.cpu_count() or 1)) as ours:
        time.sleep(2)
        last = runner.look(False, first.threads)
    here = [f"/proc/{process.pid}/task/{process.pid}/schedstat" for process in ours]
    assert {*here} <= last.threads.keys()
    assert all(last.threads[path][1] > 0.2 for path in here)
    assert last.busy - first.busy > 1
    later = runner.look(False, last.threads)  # who has ended has waited all the same
    assert {*here} <= later.threads.keys()


# --- beside 20 others that never stop ---


@contextmanager
def crowd(count: int):
    words = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(words) for _ in range(count)]
    try:
        yield busy
    finally:
        for process in busy:
            process.kill()
            process.wait()


SLOW = "    import time\n    end = time.thread_time() + 2\n"
SLOW += "    while time.thread_time() < end: pass\n"
BESIDE = {
    "a hang": ("    dist.recv(x, 1 - dist.get_rank())\n", "fail: "),
    "no end": ("    while True: pass\n", "fail: "),
    "slow and right": (SLOW, "pass"),
}


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.skipif(UNSAFE, reason="there is no sandbox here")
@pytest.mark.parametrize("name", BESIDE)
def test_the_verdict_is_the_same_beside_a_crowd(name):
    lines, expected = BESIDE[name]
    answer = changed("ring", ("    b = bounds", f"{lines}    b = bounds"))
    with crowd(20), closing(box(RING, answer)) as judged:
        assert str(try_case(judged, "right", CASE)).startswith(expected)


COMPILES = (
    "@torch.compile\ndef f(): pass",
    "from torch import compile\ncompile(print)",
    "@torch.compile(dynamic=True)\ndef f(): pass",
    "torch.nn.Linear(2, 2).compile()",
)


@pytest.mark.parametrize("line", some(COMPILES, COMPILES[0]))
def test_what_compiles_is_left_as_it_is(line):
    answer = changed("ring", ("def bounds", f"{line}\n\n\ndef bounds"))
    found = verdict("ring", answer, "right", [CASE])
    assert found.state == "pass", found


@pytest.fixture
def collecting():
    """Let the collector run all the time, with a callback that lets others go on."""
    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(lambda *_: sum(range(50)))
    gc.set_threshold(5)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*before)
    gc.callbacks.pop()


def test_many_submissions_are_parsed_at_once(collecting):
    """ast.parse of two threads at once raises SystemError in Python 3.11.7, say."""
    text = "x = [f(a + b * (c - d)) for a in range(3)]\n" * 200
    with ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(parsed, [text] * 40)]) == 40
