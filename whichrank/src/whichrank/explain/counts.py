"""Count what ranks have not done alike before they stood still.

A rank that has made a call too many, or too few, goes on like the others until its
calls differ from theirs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from whichrank.explain.causes.waiting import Counted
from whichrank.record.calls import Call, Key, calls_until, kept_by_all
from whichrank.record.source import in_one_loop
from whichrank.record.stacks import Frame, parting


def before(calls: Sequence[Sequence[Call]], by_rank: dict[int, Call]) -> Counted | None:
    """Return a call that some of these ranks have made more often before, at one line.

    Args:
        calls: of each rank.
        by_rank: the call up to which, of the ranks that are compared. Where some send
            gradients by it, and the others have left their loop, it counts as well:
            they have skipped a backward.
    """
    until = {r: calls_until(calls[r], call.key) for r, call in by_rank.items()}
    until, since = kept_by_all(until)
    made = {rank: its[:-1] for rank, its in until.items()}
    sends = [call for call in by_rank.values() if call.sends_gradients]
    if sends:
        others = [call for call in by_rank.values() if not call.sends_gradients]
        over = bool(others) and not any(_in_its_loop(c, sends[0]) for c in others)
        gradients = until if over else made
        skipped = {r: [c for c in m if c.sends_gradients] for r, m in gradients.items()}
        made = skipped if over or unlike(skipped) else until
    counted = [replace(each, since=since) for each in unlike(made)]
    if sends and made is until:  # all have sent alike: what is odd is another call
        counted = [each for each in counted if not each.call.sends_gradients]
    # A line to which some have never come tells most.
    return min(counted, key=lambda each: min(each.times.values()) > 0, default=None)


def _in_its_loop(call: Call, sends: Call) -> bool:
    """Tell whether a call is made in the loop in which another sends gradients.

    Of both it is known by which lines the program has come there. Without its text we
    do not know, and do not say that a backward was skipped.
    """
    lines = where_they_part(call.path, sends.path)
    return lines is None or not lines[0].code or in_one_loop(*lines)


def where_they_part(one: Sequence[Frame], other: Sequence[Frame]) -> list[Frame] | None:
    """Return the lines of one function at which two ways through a program part."""
    at = parting((one, other))
    if at is None or at >= min(len(one), len(other)):
        return None
    lines = [one[at], other[at]]
    return lines if len({(line.file, line.name) for line in lines}) == 1 else None


def _branches(
    made: dict[int, list[Call]],
) -> set[tuple[str, str, int]]:
    """Return the calls of both branches of an `if rank == 0`, which meet each other.

    Whoever makes the one never makes the other.
    """
    kinds = {rank: {call.kind for call in its} for rank, its in made.items()}
    meets: dict[tuple[str, str, int], set[tuple[str, str, int]]] = {}
    by_key: dict[Key, set[tuple[str, str, int]]] = {}
    for call in chain(*made.values()):
        by_key.setdefault(call.key, set()).add(call.kind)
    for together in by_key.values():
        for kind in together:
            meets.setdefault(kind, set()).update(together - {kind})
    return {
        kind
        for kind, others in meets.items()
        if others
        and {other[0] for other in others} == {kind[0]}
        and not any(kind in its and others & its for its in kinds.values())
    }


def unlike(made: dict[int, list[Call]]) -> list[Counted]:
    """Return each call, at one line, that some ranks have made more often."""
    branches = _branches(made)
    counts = {rank: Counter(call.kind for call in its) for rank, its in made.items()}
    first: dict[tuple[str, str, int], Call] = {}
    for call in chain(*made.values()):
        if call.frame:
            first.setdefault(call.kind, call)
    counted = [
        Counted(call, {rank: count[kind] for rank, count in counts.items()})
        for kind, call in first.items()
        if kind not in branches
    ]
    return [each for each in counted if len({*each.times.values()}) > 1]
