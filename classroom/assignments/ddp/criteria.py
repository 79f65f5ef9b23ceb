"""Assignment 2, DDP from scratch: a DataParallel with buckets, overlap and no_sync.

Except in `start` and `steps`, all ranks begin with the same weights.
"""

from itertools import accumulate, product
from typing import Any

import numpy as np

from classroom.assignments.beside import averaged
from classroom.assignments.beside.averaged import RATE, Case
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
    """From the second step on, no all_reduce is larger than a bucket, there are no more
    than needed, and nothing is sent twice, nor by another collective.
    """
    case = Case(rig, {"sizes": sizes, "bias": True, "dtype": dtype}, [{}] * 3, **more)
    _, diary = case.judged()
    params, expected = case.sizes(), case.buckets()
    for step, rank in product((1, 2), range(case.ranks)):
        got = diary.sizes(step, rank)
        others = len(diary.of(step, rank, "call")) - len(got)
        large = [n for n in got if n > case.bucket_bytes and n not in params]
        if others or large or sum(got) != sum(params) or len(got) > len(expected):
            told = f"rank {rank} expected all_reduces such as {expected} bytes"
            told += f" in step {step}, got {got}"
            return fail(f"{told} and {others} other calls" if others else told)
    return PASS


def early(rig: Rig, *, sizes: list[int], **more: Any) -> Verdict:
    """A bucket has been sent before the last layer is computed, and all but the last
    bucket when backward() is through, whether a hook waits for them or not.
    """
    case = Case(rig, {"sizes": sizes}, [{}] * 2, bucket_bytes=1, **more)
    *ahead, _ = case.buckets()
    case.needs = [[ahead[0], *[0] * (len(sizes) - 2), sum(ahead)]] * 2
    outcome, diary = case.judged()
    return case.sent_late(diary) or case.same_gradients(outcome)


def fast(rig: Rig, *, sizes: list[int], late: int, **more: Any) -> Verdict:
    """As fast as PyTorch's DDP: a layer's bucket is sent before the next layer is
    computed, and backward() waits for nobody, not even for a rank that has not begun.
    """
    case = racing(rig, sizes=sizes, late=late, **more)
    outcome, diary = case.judged()
    wrong = case.waited(diary) or case.sent_late(diary) or case.sent_once(diary)
    return wrong or case.same_gradients(outcome)


def racing(rig: Rig, *, sizes: list[int], late: int, **more: Any) -> Case:
    """A case whose third step has a rank that is late; the fourth is looked at."""
    plan: list[dict] = [{}, {}, {"late": late}, {}]
    case = Case(rig, {"sizes": sizes}, plan, bucket_bytes=1, **more)
    after = [0, *accumulate(reversed(case.sizes()))]  # bytes of the layers behind each
    case.needs = [[], [], [], [*after[-2::-1], after[-1]]]
    return case


def order(
    rig: Rig,
    *,
    sizes: list[int],
    registered: list[int] | None = None,
    heads: list[list[int]] | None = None,
    **more: Any,
) -> Verdict:
    """From the second step on, buckets are sent during backward(), in the order in
    which rank 0's first one had the gradients ready.
    """
    net: dict = {"sizes": sizes, "registered": registered}
    step: dict = {}
    if heads:
        net["heads"], step = 1 + max(map(max, heads)), {"heads": heads}
    needs = [[], *[[0] * (len(sizes) - 1) + [1]] * 2]
    case = Case(rig, net, [step] * 3, bucket_bytes=1, needs=needs, **more)
    outcome, diary = case.judged()
    names = {name: 4 * p.numel() for name, p in case.net.named_parameters()}
    # Autograd works backward: what was used last is ready first.
    used = [f"layer_{layer}.weight" for layer in range(len(sizes) - 1)]
    used += [f"head_{head}.weight" for head in (heads or [[]])[0]]
    expected = [names[name] for name in reversed(used)]
    for number, rank in product((1, 2), range(case.ranks)):
        if (got := diary.sizes(number, rank)) != expected:
            told = f"rank {rank} expected all_reduces of {expected} bytes"
            return fail(f"{told} in step {number}, got {got}")
    return case.sent_late(diary) or case.same_gradients(outcome)


def waits(rig: Rig, *, sizes: list[int], **more: Any) -> Verdict:
    """However long they take, finish() returns when all means are there."""
    case = Case(rig, {"sizes": sizes}, [{}] * 2, lazy=True, **more)
    return case.same_gradients(case.judged()[0])


def no_sync(
    rig: Rig,
    *,
    sizes: list[int],
    micro: int,
    steps: int = 2,
    raises: int | None = None,
    **more: Any,
) -> Verdict:
    """In no_sync() nothing is sent; the next backward() sends the whole sum, also after
    a raise.
    """
    rows = [{"raises": number == raises} for number in range(micro)]
    plan: list[dict] = [{"micro": micro}, *[{"micro": rows}] * (steps - 1)]
    more |= {"needs": [[0] * (len(sizes) - 1) + [1]] * steps, "bucket_bytes": 1}
    case = Case(rig, {"sizes": sizes, "bias": True}, plan, **more)
    outcome, diary = case.judged()
    for rank, step in product(range(case.ranks), range(steps)):
        words = [e["what"] for e in diary.of(step, rank, "backward", "call")]
        if (at := words.index("call")) < micro - 1:
            told = f"in no_sync(), micro-batch {at} of step {step}"
            return fail(f"rank {rank} makes a call {told}")
    wrong = case.sent_late(diary) or case.sent_once(diary)
    return wrong or case.same_gradients(outcome)


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
    turns = [heads[turn % ranks :] + heads[: turn % ranks] for turn in range(micro + 2)]
    steps = range(3)
    plan = [{"micro": [{"heads": turns[s + m]} for m in range(micro)]} for s in steps]
    case = Case(rig, net, plan, bucket_bytes=1, **more)
    return case.same_gradients(case.judged()[0])


CRITERIA = named(
    start, steps, buckets, early, fast, order, waits, no_sync, frozen_tied, unused
)
