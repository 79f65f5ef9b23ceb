"""Words that several explanations need: lists, ranks, verbs, signals."""

import signal
from collections.abc import Iterable, Sized
from typing import TypeVar

What = TypeVar("What")
SINGULAR = {"are": "is", "have": "has"}


def listed(names: Iterable[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def conjugate(verb: str, who: Sized) -> str:
    """Return `waits` for one, `wait` for several."""
    return verb if len(who) > 1 else SINGULAR.get(verb, f"{verb}s")


def ranks(numbers: Iterable[int]) -> str:
    """Return `rank 1` or `ranks 0, 2 and 3`."""
    return _several("rank", numbers)


def nodes(numbers: Iterable[int]) -> str:
    """Return `node 1` or `nodes 0 and 2`."""
    return _several("node", numbers)


def _several(what: str, numbers: Iterable[int]) -> str:
    names = [str(number) for number in numbers]
    return f"{what}{'s' * (len(names) > 1)} {listed(names)}"


def sides(of_rank: Iterable[tuple[What, int]]) -> dict[What, list[int]]:
    """Return of which ranks each thing holds, as in `{"barrier": [0, 2]}`."""
    of_ranks: dict[What, list[int]] = {}
    for what, number in of_rank:
        of_ranks.setdefault(what, []).append(number)
    return of_ranks


def times(count: int) -> str:
    """Return `never`, `once`, `twice` or `3 times`."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def duration(seconds: float) -> str:
    """Return `12 seconds`, `5 minutes` or `3 hours`: as much as is worth telling."""
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= 2 * unit:
            return f"{seconds // unit:.0f} {name}s"
    whole = max(int(seconds), 1)
    return f"{whole} second{'s' * (whole > 1)}"


def signal_name(number: int) -> str:
    """Return what a signal is called; "" if the number is none that has a name."""
    return {known.value: known.name for known in signal.Signals}.get(number, "")


def ended_by(code: int) -> str:
    """Return how a process has ended with a negative exit code, by which signal."""
    return f"was ended by {signal_name(-code) or f'signal {-code}'}"
