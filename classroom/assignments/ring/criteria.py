"""Assignment 1, Ring: all_reduce out of send and recv."""

import math

import numpy as np

from classroom.assignments.beside.wired import wired
from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Verdict, fail

PROGRAMS = {"program": "ring.py"}
WORDS = {
    "questions": "[length, chunks] {}",
    "length": "{} numbers",
    "dtype": "{}",
    "megabytes": "{} MB",
}
BYTES_SLACK = 0.05  # of the bytes that a ring needs
ROUNDING = 1e-5  # of the largest number, where a mean is taken
FEW = 20  # where bytes are not counted: to be read, and exact in every dtype
EXACT = 2**24 - 1  # up to which a float32 holds every whole number
LARGE = 2**50  # whose sum needs all 64 bits of its dtype


def run(
    rig: Rig, ranks: int, length: int, dtype: str, seed: int, most: int = FEW
) -> tuple[Outcome, list[dict], np.ndarray]:
    """Run it on whole numbers up to `most` that `seed` draws: their sum is exact in
    whichever order a ring takes. Return also the wire's diary, and the sum; without a
    result the case is decided.
    """
    vectors = rig.draw(seed).integers(-most, most + 1, size=(ranks, length))
    kind = np.float32 if dtype == "bfloat16" else np.dtype(dtype)
    given = [{"x": vector.astype(kind), "dtype": dtype} for vector in vectors]
    outcome, diary = wired(rig, given, machine={"lazy": True}, calls=[])
    outcome.must_give("result", "same", "waited", "intact")
    return outcome, diary, vectors.sum(0).astype(kind)


def run_full(
    rig: Rig, ranks: int, length: int, seed: int
) -> tuple[Outcome, list[dict], np.ndarray]:
    """Run it on float32 that have all their bits: none can be sent in fewer bytes."""
    return run(rig, ranks, length, "float32", seed, EXACT // ranks)


def bytes_of(diary: list[dict], ranks: int, end: str) -> list[int]:
    """Return how many bytes each rank sent (`end` is "rank") or received ("to")."""
    told = [e for e in diary if e["what"] == "messages"]
    return [sum(e["bytes"] for e in told if e[end] == rank) for rank in range(ranks)]


def summed(expected: np.ndarray, outcome: Outcome) -> Verdict:
    """Compare the results with the sum. The mean will do where it is not the idea."""
    mean = (expected / len(outcome.outputs)).astype(expected.dtype)
    off = ROUNDING * np.abs(mean).max(initial=0)
    if compare_all(mean, outcome, "result", atol=off) == PASS:
        return PASS
    return compare_all(expected, outcome, "result")


def chunks(rig: Rig, *, questions: list[list[int]]) -> Verdict:
    """They cover the vector, and none is longer than another by more than one."""
    outcome = rig.run(1, {"questions": questions})
    outcome.must_give("bounds")
    for question, found in zip(questions, outcome.outputs[0]["bounds"], strict=True):
        length, parts = question
        sizes = np.diff(found)
        whole = len(sizes) == parts and (found[0], found[-1]) == (0, length)
        if not whole or min(sizes) < 0 or max(sizes) - min(sizes) > 1:
            told = f"{parts} chunks of {length // parts} or one more, got {found}"
            return fail(f"bounds({length}, {parts}): expected {told}")
    return PASS


def right(rig: Rig, *, ranks: int, length: int, seed: int = 0) -> Verdict:
    """Every rank ends with the sum of all vectors."""
    outcome, _, expected = run(rig, ranks, length, "float32", seed)
    return compare_all(expected, outcome, "result")


def any_length(rig: Rig, *, ranks: int, length: int, seed: int = 0) -> Verdict:
    """Also if the ranks do not divide the length, for few numbers, and for none."""
    outcome, _, expected = run(rig, ranks, length, "float32", seed)
    return summed(expected, outcome)


def any_dtype(
    rig: Rig, *, ranks: int, length: int, dtype: str, seed: int = 0
) -> Verdict:
    """Numbers of every kind are added and sent as such, and stay of their kind."""
    most = LARGE if dtype in ("int64", "float64") else FEW
    outcome, diary, expected = run(rig, ranks, length, dtype, seed, most)
    verdict = compare_all(expected, outcome, "result")
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    wrong = over_budget(diary, ranks, size * length)
    return wrong if wrong and verdict.state == "pass" else verdict


def in_place(rig: Rig, *, ranks: int, length: int, seed: int = 0) -> Verdict:
    """The caller's own tensor holds the sum, and no message of it is under way."""
    outcome, _, expected = run(rig, ranks, length, "float32", seed)
    for name, told in {
        "same": "makes a new tensor: the sum belongs in the old one",
        "waited": "returns before it has waited for all that it sends and receives",
        "intact": "writes to what it sends before it has waited for that",
    }.items():
        if not all(given[name] for given in outcome.outputs):
            return fail(f"all_reduce {told}")
    return summed(expected, outcome)


def messages(rig: Rig, *, ranks: int, length: int, seed: int = 0) -> Verdict:
    """The numbers of the sum come to each rank in messages, and in no other way."""
    outcome, diary, expected = run_full(rig, ranks, length, seed)
    return lacking(diary, ranks, 4 * length) or summed(expected, outcome)


def lacking(diary: list[dict], ranks: int, size: int) -> Verdict | None:
    """Say so if a rank receives less than the `size` bytes of the vector."""
    for rank, received in enumerate(bytes_of(diary, ranks, "to")):
        if received < size:
            told = f"rank {rank} receives {received:,} bytes in messages"
            return fail(f"{told}, expected at least the {size:,} of the vector")
    return None


def bytes_sent(rig: Rig, *, ranks: int, length: int, seed: int = 0) -> Verdict:
    """Each of n ranks sends 2 (n - 1) / n of the vector's bytes, within 5 %."""
    outcome, diary, expected = run_full(rig, ranks, length, seed)
    return over_budget(diary, ranks, 4 * length) or summed(expected, outcome)


def over_budget(diary: list[dict], ranks: int, size: int) -> Verdict | None:
    """Say so if a rank sends another number of bytes than a ring needs for `size`."""
    budget = 2 * (ranks - 1) / ranks * size
    for rank, sent in enumerate(bytes_of(diary, ranks, "rank")):
        if not math.isclose(sent, budget, abs_tol=BYTES_SLACK * budget):
            told = f"rank {rank} sends {sent:,} bytes, expected {budget:,.0f}"
            return fail(f"{told} = 2 (n - 1) / n · S, ± {BYTES_SLACK:.0%}")
    return None


def no_deadlock(rig: Rig, *, ranks: int, megabytes: int) -> Verdict:
    """A vector too large for any buffer on the way arrives, in no more bytes."""
    size = megabytes * 1_000_000
    outcome, diary, expected = run_full(rig, ranks, size // 4, 0)
    wrong = lacking(diary, ranks, size) or over_budget(diary, ranks, size)
    return wrong or summed(expected, outcome)


CRITERIA = named(
    chunks, right, any_length, any_dtype, in_place, messages, bytes_sent, no_deadlock
)
