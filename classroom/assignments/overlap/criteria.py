"""Assignment 10, Overlap: communication hidden behind computation."""

from typing import Any

from classroom.assignments.beside import averaged
from classroom.assignments.beside.averaged import BRIEF, RATE, Case, accumulated, hidden
from classroom.engine.assignment import named
from classroom.engine.rig import Rig
from classroom.engine.verdict import PASS, Verdict, fail

PROGRAMS = {"program": "overlap.py"}
WORDS = averaged.WORDS


def mean(rig: Rig, *, sizes: list[int], steps: int, **more: Any) -> Verdict:
    """After wait(), every .grad is the mean over the ranks, in every step."""
    case = Case(rig, {"sizes": sizes}, [{}] * steps, rate=RATE, **more)
    return case.same_gradients(case.judged()[0], scaled=False)


def buckets(
    rig: Rig, *, ranks: int, sizes: list[int], bucket_bytes: int, **more: Any
) -> Verdict:
    """From the second step on, no all_reduce is larger than a bucket, there are no more
    than needed, and nothing is sent twice.
    """
    more |= {"ranks": ranks, "bucket_bytes": bucket_bytes}
    case = Case(rig, {"sizes": sizes}, [{}] * 3, **more)
    _, diary = case.judged()
    params, most = case.sizes(), len(case.buckets())
    for step in (1, 2):
        for rank in range(ranks):
            got = diary.sizes(step, rank)
            told = f"rank {rank}, step {step}: all_reduces of {got} bytes, expected"
            if others := len(diary.of(step, rank, "call")) - len(got):
                return fail(f"{told} no other collective, got {others}")
            if sum(got) != sum(params):
                return fail(f"{told} {sum(params)} bytes in all, got {sum(got)}")
            if large := [n for n in got if n > bucket_bytes and n not in params]:
                return fail(f"{told} at most {bucket_bytes} in one, got {large[0]}")
            if len(got) > most:
                return fail(f"{told} at most {most} of them, got {len(got)}")
    return PASS


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
    case = Case(rig, net, [step] * 3, bucket_bytes=1, nap=BRIEF, **more)
    outcome, diary = case.judged()
    names = {name: 4 * p.numel() for name, p in case.net.named_parameters()}
    # Autograd works backward: what was used last is ready first.
    used = [f"layer_{layer}.weight" for layer in range(len(sizes) - 1)]
    used += [f"head_{head}.weight" for head in (heads or [[]])[0]]
    expected = [names[name] for name in reversed(used)]
    for number in (1, 2):
        for rank in range(case.ranks):
            got = diary.sizes(number, rank)
            if got != expected:
                told = f"rank {rank} expected all_reduces of {expected} bytes"
                return fail(f"{told} in step {number}, got {got}")
    return case.sent_late(diary, [1, 2]) or case.same_gradients(outcome)


def waits(rig: Rig, *, sizes: list[int], wire: float, **more: Any) -> Verdict:
    """However slow the wire, wait() returns when the means are there, not before."""
    case = Case(rig, {"sizes": sizes}, [{}] * 2, wire=(wire, 0.0), **more)
    return case.same_gradients(case.judged()[0])


def odd(
    rig: Rig,
    *,
    ranks: int,
    seed: int = 0,
    heads: list[list[list[int]]] | None = None,
    **net: Any,
) -> Verdict:
    """What is frozen is not sent, what is used twice is sent once, and what a rank has
    not used counts as zeros.
    """
    plan: list[dict] = [{}, {}]
    if heads:
        flat = [head for step in heads for row in step for head in row]
        net["heads"], plan = 1 + max(flat), [{"heads": step} for step in heads]
    case = Case(rig, net, plan, ranks=ranks, seed=seed, bucket_bytes=1)
    outcome, diary = case.judged()
    return case.sent_once(diary) or case.same_gradients(outcome)


def accumulate(
    rig: Rig, *, sizes: list[int], micro: int, steps: int = 2, **more: Any
) -> Verdict:
    """In no_sync() nothing is sent; the next backward() sends the whole sum."""
    plan = [{"micro": micro}] * steps
    return accumulated(rig, {"sizes": sizes}, plan, micro, **more)


CRITERIA = named(mean, buckets, hidden, order, waits, odd, accumulate)
