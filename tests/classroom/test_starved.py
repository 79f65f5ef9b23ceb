"""A run that had no core is judged again; one that stands still has failed."""

import gc
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from course import RING, changed, solution, verdict

from classroom.engine import rig, runner
from classroom.engine.check import try_case
from classroom.engine.modules import parsed
from classroom.engine.rig import Outcome, Rig
from ddp_lab.kit import RunFailed
from ddp_lab.kit.run import limits

pytestmark = pytest.mark.sandbox
CASE = {"ranks": 2, "length": 8}


class Silent(Rig):
    """A rig whose runs end in silence, and at first have had no core."""

    def __init__(self, times: int):
        super().__init__(RING, solution("ring"))
        self.times, self.asked = times, []

    def _once(self, ranks, inputs, **more) -> Outcome:
        self.asked.append((more["timeout"], more["quiet"]))
        self.times -= 1
        silent = Outcome([{}] * ranks, "no end", events=[[] for _ in range(ranks)])
        silent.starved = self.times >= 0
        return silent


def test_a_silent_run_that_had_no_core_is_judged_again_and_alone():
    silent = Silent(1)
    assert str(try_case(silent, "right", CASE)) == "fail: no end"
    assert silent.asked == [(20, False), (20 * rig.LONGER, True)]


def test_it_is_blocked_if_it_never_has_one_and_no_zero():
    found = try_case(Silent(2), "right", CASE)
    assert found.state == "blocked" and "too busy" in found.words


def test_who_stands_still_is_not_starved():
    first = 0, 1.0, 5.0
    assert not runner.starved(2, first, (20, 1.1, 5.5))  # waits for a message
    assert not runner.starved(2, first, (20, 20.0, 6.0))  # runs without end
    assert runner.starved(2, first, (20, 2.0, 25.0))  # would have liked to


def test_ranks_that_wait_for_others_are_starved_and_for_each_other_are_not():
    """Eight compute on two cores for 40 seconds."""
    first = 0, 0.0, 0.0
    assert runner.starved(2, first, (40, 30.0, 28.0))  # others had the cores meanwhile
    assert not runner.starved(2, first, (40, 78.0, 240.0))  # nobody else was there


def test_what_counts_is_the_silence_and_not_the_questions_after_it(monkeypatch):
    """Eight ranks are asked where they stand, which takes long on a busy machine."""
    now, failure = [0.0], SimpleNamespace(kind="timeout", report=lambda **_: "no end")
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(runner, "cores", lambda *_: (now[0] / 4, 2 * min(now[0], 40)))

    def torchrun(command, watch, **more):
        run = SimpleNamespace(code=None, exit_codes=[], failure=failure)
        for now[0] in range(40):
            watch(run)
        now[0], run.code = 100, 1
        watch(run)
        raise RunFailed("no end", run)

    monkeypatch.setattr("ddp_lab.kit.launch.torchrun", torchrun)
    header = {"ranks": 8, "timeout": 40}
    assert runner.launch(header, Path("/nowhere"), limits.Limits())["starved"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts this")
def test_the_system_tells_who_waits_for_a_core():
    seen: dict = {}
    before = runner.cores(seen, [])
    busy = "import time\nend = time.time() + 2\nwhile time.time() < end: pass"
    words = [sys.executable, "-c", busy]
    crowd = [subprocess.Popen(words) for _ in range(2 * (os.cpu_count() or 1))]
    time.sleep(1.5)
    assert {process.pid for process in crowd} <= {*(ours := runner.below())}
    ran, waited = (b - a for a, b in zip(before, runner.cores(seen, ours), strict=True))
    for process in crowd:
        process.wait()
    # Who has ended has waited all the same.
    later = (b - a for a, b in zip(before, runner.cores(seen, []), strict=True))
    assert all(b >= a for a, b in zip((ran, waited), later, strict=True))
    assert ran > 0.05 and waited > 0.2


def test_a_students_own_check_knows_it_too(monkeypatch):
    """There its processes are not alone in /proc."""
    monkeypatch.setattr(runner, "starved", lambda *looks: True)
    monkeypatch.setattr(runner, "RESERVE", 600.0)  # silence shall end it
    monkeypatch.setattr(limits, "Limits", partial(limits.Limits, first_sign=2.0))
    header = {"ranks": 1, "timeout": 2.0, "recorder": "/nowhere"}
    harness = b"import time\nprint(1, flush=True)\ntime.sleep(600)\n"
    assert runner.execute(header, {"harness.py": harness})[0]["starved"]


@pytest.mark.parametrize(
    "line",
    [
        "@torch.compile\ndef f(): pass",
        "from torch import compile\ncompile(print)",
        "@torch.compile(dynamic=True)\ndef f(): pass",
        "torch.nn.Linear(2, 2).compile()",
    ],
)
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
