"""What is told of a standstill."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record.stacks import Frame


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a standstill."""

    symptom: Symptom
    cause: str
    rank: int | None = None
    """The one whose behaviour differs from the others'; None if no one's does."""
    frame: Frame | None = None


def odd_one(of_rank: Mapping[int, object]) -> int | None:
    """Return the rank that differs from all others, if there is exactly one."""
    counts = Counter(of_rank.values())
    odd = [rank for rank, what in of_rank.items() if counts[what] == 1]
    return odd[0] if len(counts) == 2 and len(odd) == 1 else None
