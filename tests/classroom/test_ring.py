"""Assignment 1: as it is graded, in a sandbox; test_solutions.py has the rest."""

import numpy as np
import pytest
from course import RING, changed, judged, solution, states

from classroom.assignments.ring import criteria as ring
from classroom.engine import sandbox
from classroom.engine.rig import Outcome, Rig

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(
    "criteria",
    [
        pytest.param(["messages", "bytes_sent"], id="what is counted outside"),
        pytest.param([*ring.CRITERIA], id="all", marks=pytest.mark.full),
    ],
)
def test_the_solution_gets_full_marks(criteria):
    found = judged("ring", solution("ring"), criteria)
    assert states(found) == dict.fromkeys(criteria, "pass"), found


def test_the_feedback_says_rank_expected_and_got():
    answer = changed("ring", ("mine += recv_buf", "mine -= recv_buf"))
    found = judged("ring", answer, {"right"})["right"]
    assert found["state"] == "fail"
    assert "fail: rank 0 expected [" in found["lines"][-1]
    assert "numbers differ, first at" in found["lines"][-1]


def test_a_hang_shows_where_each_rank_stands():
    works = "    works = ["
    answer = changed("ring", (works, f"    dist.send(send_buf, right)\n{works}"))
    found = judged("ring", answer, {"right"})["right"]
    assert found["state"] == "fail"
    assert "rank 0 waits in send for rank 1" in found["lines"][-1]
    assert "ring.py:" in found["lines"][-1] and "in exchange" in found["lines"][-1]


# --- without any run: what the judge says of results that are given here ---


class Given(Rig):
    """A rig whose runs have always had one outcome."""

    def __init__(self, *outputs: dict, wire: int | None = None, sent: int = 0):
        super().__init__(RING, {})
        call = {"what": "call", "name": "send", "bytes": sent}
        events = [[{"what": "begin"}, call, {"what": "end"}]] * len(outputs)
        self.outcome = Outcome(list(outputs), bytes_on_wire=wire, events=events)

    def run(self, *args, **more) -> Outcome:
        return self.outcome


def held(length: int, *numbers: float) -> dict:
    return {"length": length, "unique": np.array(numbers, dtype=np.float64)}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (held(250_000, 3), "pass"),
        (held(250_000, -1, 3), "fail: rank 1 expected 250,000 times 3, got -1, 3"),
        (held(1, 3), "fail: rank 1 expected 250,000 times 3, got 1 numbers"),
    ],
)
def test_no_deadlock_says_what_should_be_where(second, said):
    rig = Given(held(250_000, 3), second)
    assert str(ring.no_deadlock(rig, ranks=2, megabytes=1)) == said


@pytest.mark.parametrize(("gpus", "state"), [(0, "fail"), (1, "fail"), (2, "pass")])
def test_where_each_rank_has_a_gpu_the_wire_tells_nothing(gpus, state, monkeypatch):
    monkeypatch.setattr(sandbox, "gpus", lambda: gpus)
    expected = ring.run(Given(), 2, 1_000_000, "float32", 1)[1]
    given = {"result": expected}
    rig = Given(given, given, wire=1000, sent=4_000_000)
    verdict = ring.bytes_sent(rig, ranks=2, length=1_000_000, seed=1)
    assert verdict.state == state
