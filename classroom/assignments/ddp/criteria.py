"""Assignment 2, DDP from scratch: a DataParallel with buckets, overlap and no_sync.

Except in `steps`, all ranks begin with the same weights.
"""

from typing import Any

import numpy as np

from classroom.assignments.beside import averaged
from classroom.assignments.beside.averaged import RATE, Case, accumulated
from classroom.engine.assignment import named
from classroom.engine.rig import Rig, compare_all
from classroom.engine.verdict import PASS, Verdict, fail

PROGRAMS = {"program": "ddp.py"}
WORDS = averaged.WORDS


def start(rig: Rig, *, sizes: list[int], **more: Any) -> Verdict:
    """Every rank begins with rank 0's parameters and buffers."""
    net = {"sizes": sizes, "bias": True, "norm": True}
    case = Case(rig, net, [], apart="all", **more)
    outcome, _ = case.run()
    expected = np.concatenate(case.starts[0]).astype(np.float64)
    unfinished = "NotImplementedError" in (outcome.failure or "")
    begun = all("start" in given for given in outcome.outputs)
    if not (unfinished and begun):  # elsewhere than in what is judged here
        outcome.must_give("start")
    verdict = compare_all(expected, outcome, "start")
    if verdict.state == "fail" and unfinished:
        return outcome.problem() or verdict
    return verdict


def steps(rig: Rig, *, sizes: list[int], steps: int, **more: Any) -> Verdict:
    """From different weights, every step is that of one process."""
    net = {"sizes": sizes, "bias": True}
    case = Case(rig, net, [{}] * steps, apart="all", rate=RATE, **more)
    return case.same_gradients(case.judged()[0], scaled=False)


def buckets(
    rig: Rig, *, sizes: list[int], dtype: str = "float32", **more: Any
) -> Verdict:
    """One all_reduce for each bucket, of the right size, in each step."""
    case = Case(rig, {"sizes": sizes, "bias": True, "dtype": dtype}, [{}] * 2, **more)
    _, diary = case.judged()
    expected = case.buckets()
    for rank in range(case.ranks):
        for step in range(2):
            called = diary.of(step, rank, "call")
            others = sorted({call["about"] for call in called} - {"all_reduce"})
            if others:
                what = ", ".join(others)
                return fail(f"rank {rank} calls {what} in step {step}, not all_reduce")
            if (got := diary.sizes(step, rank)) != expected:
                wanted = f"all_reduces of {expected} bytes in step {step}"
                return fail(f"rank {rank} expected {wanted}, got {got}")
    return PASS


def overlap(rig: Rig, **case: Any) -> Verdict:
    """A bucket is sent as soon as it is full, and backward() goes on meanwhile: a step
    takes at most 1.25 times as long as the shortest possible, and waits for nobody.
    """
    return averaged.hidden(rig, **case)


def no_sync(
    rig: Rig, *, sizes: list[int], micro: int, raises: int | None = None, **more: Any
) -> Verdict:
    """In no_sync() nothing is sent; the next backward() sends the whole sum, also after
    a raise.
    """
    second = [{"raises": number == raises} for number in range(micro)]
    plan: list[dict] = [{"micro": micro}, {"micro": second}]
    return accumulated(rig, {"sizes": sizes, "bias": True}, plan, micro, **more)


def frozen_tied(rig: Rig, *, ranks: int, seed: int = 0, **net: Any) -> Verdict:
    """What is frozen is the same from the start, and not sent; what is used twice is
    sent once.
    """
    net["bias"] = True
    case = Case(rig, net, [{}] * 2, ranks=ranks, seed=seed, apart="frozen")
    outcome, diary = case.judged()
    for rank, given in enumerate(outcome.outputs):
        if given["stray"]:
            return fail(f"rank {rank} has a .grad at a frozen parameter")
    return case.sent_once(diary) or case.same_gradients(outcome)


def unused(
    rig: Rig,
    *,
    sizes: list[int],
    heads: list[list[int]],
    micro: int = 1,
    **more: Any,
) -> Verdict:
    """Parameters that a rank, or all ranks, have not used count as zeros."""
    count, ranks = 1 + max(head for row in heads for head in row), len(heads)
    net = {"sizes": sizes, "bias": True, "heads": count}
    # Every rank moves on to its neighbor's heads with each micro-batch and step.
    turns = [heads[turn % ranks :] + heads[: turn % ranks] for turn in range(micro + 1)]
    plan = [{"micro": [{"heads": turns[s + m]} for m in range(micro)]} for s in (0, 1)]
    case = Case(rig, net, plan, bucket_bytes=1, **more)
    return case.same_gradients(case.judged()[0])


CRITERIA = named(start, steps, buckets, overlap, no_sync, frozen_tied, unused)
