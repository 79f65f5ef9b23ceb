"""Assignment 1, Ring: all_reduce out of send and recv."""

import re

import numpy as np

from classroom.engine import sandbox
from classroom.engine.assignment import Criteria
from classroom.engine.recorder import calls
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Verdict, fail

PROGRAMS = {"program": "ring.py"}
WORDS = {"length": "{} numbers", "dtype": "{}", "megabytes": "{} MB"}
BYTES_SLACK = 0.05  # of the bytes that a ring needs
LAUNCH_BYTES = 300_000  # that the launch itself sends, at most
COLLECTIVE = re.compile("reduce|gather|scatter|broadcast|all_?to_?all")


def run(
    rig: Rig, ranks: int, length: int, dtype: str, seed: int
) -> tuple[Outcome, np.ndarray]:
    """Run the program on vectors drawn by `seed`; return the outcome and their sum."""
    draw = rig.draw(seed)
    # Whole numbers small enough for every dtype, bfloat16 included: the sum is exact in
    # whichever order a ring takes.
    vectors = draw.integers(-20, 21, size=(ranks, length))
    kind = np.float32 if dtype == "bfloat16" else np.dtype(dtype)
    given = [{"x": vector.astype(kind), "dtype": dtype} for vector in vectors]
    return rig.run(ranks, given), vectors.sum(0).astype(kind)


def right(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """Every rank ends with the sum of all vectors."""
    outcome, expected = run(rig, ranks, length, dtype, seed)
    return outcome.problem("result") or compare_all(expected, outcome, "result")


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
    outcome, expected = run(rig, ranks, length, dtype, seed)
    if problem := outcome.problem("result", "same"):
        return problem
    verdict = compare_all(expected, outcome, "result")
    if verdict.state == "pass" and not all(g["same"] for g in outcome.outputs):
        return fail("all_reduce returns a new tensor: the sum belongs in the old one")
    return verdict


def messages(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """The sum comes about in messages alone: no collective, no other way."""
    outcome, expected = run(rig, ranks, length, dtype, seed)
    if problem := outcome.problem("result"):
        return problem
    size, sent = size_of(length, dtype), 0
    for rank, events in enumerate(outcome.events):
        said = calls(events)
        # PyTorch's own log knows calls by other ways as well.
        names = {call["name"] for call in said} | {*outcome.calls[rank]}
        if found := sorted(name for name in names if COLLECTIVE.search(name)):
            told = ", ".join(found)
            return fail(f"rank {rank} calls {told}: messages alone are allowed")
        if (received := bytes_of(said, "recv")) < size:
            told = f"rank {rank} receives {received:,} bytes in messages"
            return fail(f"{told}, expected at least the {size:,} of the vector")
        sent += bytes_of(said, "send")
    verdict = compare_all(expected, outcome, "result")
    return verdict if verdict.state != "pass" else on_the_wire(outcome, sent)


def bytes_sent(
    rig: Rig, *, ranks: int, length: int, dtype: str = "float32", seed: int = 0
) -> Verdict:
    """Each of n ranks sends 2 (n - 1) / n of the vector's bytes, within 5 %."""
    outcome, expected = run(rig, ranks, length, dtype, seed)
    if problem := outcome.problem("result"):
        return problem
    verdict = compare_all(expected, outcome, "result")
    if verdict.state != "pass":
        return verdict
    budget = 2 * (ranks - 1) / ranks * size_of(length, dtype)
    for rank, events in enumerate(outcome.events):
        sent = bytes_of(calls(events), "send")
        if abs(sent - budget) > BYTES_SLACK * budget:
            told = f"rank {rank} sends {sent:,} bytes, expected {budget:,.0f}"
            return fail(f"{told} = 2 (n - 1) / n · S, ± {BYTES_SLACK:.0%}")
    return on_the_wire(outcome, ranks * budget)


def size_of(length: int, dtype: str) -> int:
    """Return the bytes of a vector."""
    return length * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)


def bytes_of(said: list[dict], word: str) -> int:
    """Return the bytes of all calls that begin with `word`."""
    return sum(call["bytes"] for call in said if call["name"].startswith(word))


def on_the_wire(outcome: Outcome, budget: float, at_least: bool = False) -> Verdict:
    """Compare with the kernel's own count, which no program can talk round."""
    if outcome.bytes_on_wire is None or sandbox.gpus() >= len(outcome.outputs):
        # No sandbox, or NCCL has ways of its own: the ranks' own count has to do.
        return PASS
    apart = outcome.bytes_on_wire - budget
    apart = -apart if at_least else abs(apart)
    if apart > BYTES_SLACK * budget + LAUNCH_BYTES:
        told = f"{outcome.bytes_on_wire:,} bytes went over the wire in all"
        return fail(f"{told}, expected about {budget:,.0f}")
    return PASS


def no_deadlock(rig: Rig, *, ranks: int, megabytes: int) -> Verdict:
    """A vector too large for any buffer on the way arrives all the same."""
    length = megabytes * 1_000_000 // 4
    values = rig.draw(0).integers(1, 1000, ranks)  # so that nobody knows the sum
    same = {"x": None, "length": length, "dtype": "float32"}
    inputs = [same | {"value": int(value)} for value in values]
    outcome = rig.run(ranks, inputs, timeout=40)
    if problem := outcome.problem("length"):
        return problem
    expected = float(values.sum())
    for rank, given in enumerate(outcome.outputs):
        told = f"rank {rank} expected {length:,} times {expected:g}"
        if given["length"] != length:
            return fail(f"{told}, got {given['length']:,} numbers")
        low, high = given["lowest"], given["highest"]
        if not low == high == expected:
            return fail(f"{told}, got numbers from {low:g} to {high:g}")
    # Without so many bytes no rank can have them all; with more it has no deadlock.
    return on_the_wire(outcome, 2 * (ranks - 1) * 4 * length, at_least=True)


CRITERIA: Criteria = {
    "right": right,
    "any_length": any_length,
    "any_dtype": any_dtype,
    "in_place": in_place,
    "messages": messages,
    "bytes_sent": bytes_sent,
    "no_deadlock": no_deadlock,
}
NEEDS: dict[str, list[str]] = {}
