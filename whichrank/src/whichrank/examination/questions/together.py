"""Which ranks train one model together, as far as the run shows."""

from dataclasses import dataclass

from whichrank.examination.facts import Optimizer
from whichrank.examination.questions.answer import Ranks

BY_HAND = "averaging by hand"


@dataclass(frozen=True)
class Group:
    """Ranks that need samples, and random numbers, of their own."""

    members: tuple[int, ...]
    by: str
    """What ties them; "" if nothing does, and they are all ranks there are."""


def groups(ranks: Ranks) -> list[Group]:
    """Return who trains together: in DDP, by fully_shard, or averaging by hand."""
    found: dict[tuple[int, ...], str] = {}
    for facts in ranks:
        for tie in facts.ties:
            found.setdefault(tuple(tie.ranks), tie.by)
        for optimizer in facts.optimizers:
            for members in by_hand(optimizer):
                found.setdefault(members, BY_HAND)
    tied = [Group(m, by) for m, by in found.items() if 1 < len(m) <= len(ranks)]
    every = Group(tuple(range(len(ranks))), "")
    return tied or [every] * (len(ranks) > 1)


def by_hand(optimizer: Optimizer) -> list[tuple[int, ...]]:
    """Return the ranks among which all gradients of an optimizer were averaged.

    A few of them may be summed within a tensor-parallel group, which shares samples.
    """
    idle = {*optimizer.idle}
    trained = {n for n, name in enumerate(optimizer.weights) if name not in idle}
    return [
        tuple(averaged.ranks)
        for averaged in optimizer.averaged
        if trained and trained <= {*averaged.lines}
    ]
