"""Ring, without any run: what its judge says of results that are given here."""

import numpy as np
import pytest

from classroom.grading import ring, sandbox
from classroom.grading.bench import Outcome


class Given:
    """A bench whose runs have always had one outcome."""

    def __init__(self, *outputs: dict, wire: int | None = None):
        self.outcome = Outcome(list(outputs), bytes_on_wire=wire)

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
    bench = Given(held(250_000, 3), second)
    assert str(ring.no_deadlock(bench, ranks=2, megabytes=1)) == said


@pytest.mark.parametrize(("gpus", "state"), [(0, "fail"), (1, "fail"), (2, "pass")])
def test_where_each_rank_has_a_gpu_the_wire_tells_nothing(gpus, state, monkeypatch):
    monkeypatch.setattr(sandbox, "gpus", lambda: gpus)
    expected = ring.run(Given(), 2, 1_000_000, "float32", 1)[1]
    given = {"result": expected, "sent": 4_000_000}
    bench = Given(given, given, wire=1000)
    verdict = ring.bytes_sent(bench, ranks=2, length=1_000_000, seed=1)
    assert verdict.state == state
