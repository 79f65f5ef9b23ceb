"""Assignment 1, Ring: all_reduce out of send and recv."""

import numpy as np

from classroom.assignments.beside.wired import wired
from classroom.engine.assignment import Criteria
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Verdict, fail

PROGRAMS = {"program": "ring.py"}
WORDS = {"length": "{} numbers", "dtype": "{}", "megabytes": "{} MB"}
BYTES_SLACK = 0.05  # of the bytes that a ring needs


def run(
    rig: Rig, ranks: int, length: int, dtype: str, seed: int
) -> tuple[Outcome, list[dict], np.ndarray]:
    """Run it on vectors drawn by `seed`; return also the wire's diary, and the sum."""
    draw = rig.draw(seed)
    # Whole numbers small enough for every dtype, bfloat16 included: the sum is exact in
    # whichever order a ring takes.
    vectors = draw.integers(-20, 21, size=(ranks, length))
    kind = np.float32 if dtype == "bfloat16" else np.dtype(dtype)
    given = [{"x": vector.astype(kind), "dtype": dtype} for vector in vectors]
    return *wired(rig, given, timeout=20), vectors.sum(0).astype(kind)


def bytes_of(diary: list[dict], ranks: int, end: str) -> list[int]:
    """Return how many bytes each rank sent (`end` is "rank") or received ("to")."""
    told = [e for e in diary if e["what"] == "messages"]
    return [sum(e["bytes"] for e in told if e[end] == rank) for rank in range(ranks)]


def right(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """Every rank ends with the sum of all vectors."""
    outcome, _, expected = run(rig, ranks, length, dtype, seed)
    outcome.must_give("result")
    return compare_all(expected, outcome, "result")


def any_length(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """Also if the ranks do not divide the length, for few numbers, and for none."""
    return right(rig, ranks=ranks, length=length, dtype=dtype, seed=seed)


def any_dtype(
    rig: Rig, *, ranks: int, length: int, dtype: str, seed: int = 0
) -> Verdict:
    """Numbers of every kind are added, and stay of their kind."""
    return right(rig, ranks=ranks, length=length, dtype=dtype, seed=seed)


def in_place(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """The caller's own tensor holds the sum."""
    outcome, _, expected = run(rig, ranks, length, dtype, seed)
    outcome.must_give("result", "same")
    verdict = compare_all(expected, outcome, "result")
    if verdict.state == "pass" and not all(g["same"] for g in outcome.outputs):
        return fail("all_reduce returns a new tensor: the sum belongs in the old one")
    return verdict


def messages(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """The numbers of the sum come to each rank in messages, and in no other way."""
    outcome, diary, expected = run(rig, ranks, length, dtype, seed)
    outcome.must_give("result")
    size = size_of(length, dtype)
    for rank, received in enumerate(bytes_of(diary, ranks, "to")):
        if received < size:
            told = f"rank {rank} receives {received:,} bytes in messages"
            return fail(f"{told}, expected at least the {size:,} of the vector")
    return compare_all(expected, outcome, "result")


def bytes_sent(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """Each of n ranks sends 2 (n - 1) / n of the vector's bytes, within 5 %."""
    outcome, diary, expected = run(rig, ranks, length, dtype, seed)
    outcome.must_give("result")
    wrong = over_budget(diary, ranks, size_of(length, dtype))
    return wrong or compare_all(expected, outcome, "result")


def over_budget(diary: list[dict], ranks: int, size: int) -> Verdict | None:
    """Say so if a rank sends another number of bytes than a ring needs for `size`."""
    budget = 2 * (ranks - 1) / ranks * size
    for rank, sent in enumerate(bytes_of(diary, ranks, "rank")):
        if abs(sent - budget) > BYTES_SLACK * budget:
            told = f"rank {rank} sends {sent:,} bytes, expected {budget:,.0f}"
            return fail(f"{told} = 2 (n - 1) / n · S, ± {BYTES_SLACK:.0%}")
    return None


def size_of(length: int, dtype: str) -> int:
    """Return the bytes of a vector."""
    return length * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)


def no_deadlock(rig: Rig, *, ranks: int, megabytes: int) -> Verdict:
    """A vector too large for any buffer on the way arrives, in no more bytes."""
    length = megabytes * 1_000_000 // 4
    values = rig.draw(0).integers(1, 1000, ranks)  # so that nobody knows the sum
    same = {"x": None, "length": length, "dtype": "float32"}
    inputs = [same | {"value": int(value)} for value in values]
    outcome, diary = wired(rig, inputs, timeout=40)
    outcome.must_give("length")
    expected = float(values.sum())
    for rank, given in enumerate(outcome.outputs):
        told = f"rank {rank} expected {length:,} times {expected:g}"
        if given["length"] != length:
            return fail(f"{told}, got {given['length']:,} numbers")
        low, high = given["lowest"], given["highest"]
        if not low == high == expected:
            return fail(f"{told}, got numbers from {low:g} to {high:g}")
        if (got := bytes_of(diary, ranks, "to")[rank]) < 4 * length:
            what = f"the {4 * length:,} bytes of the vector in messages"
            return fail(f"rank {rank} expected {what}, got {got:,}")
    return over_budget(diary, ranks, 4 * length) or PASS


CRITERIA: Criteria = {
    "right": right,
    "any_length": any_length,
    "any_dtype": any_dtype,
    "in_place": in_place,
    "messages": messages,
    "bytes_sent": bytes_sent,
    "no_deadlock": no_deadlock,
}
