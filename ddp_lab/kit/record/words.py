"""Words that several explanations need: lists, verbs, signals."""

import signal
from collections.abc import Iterable, Sized

SINGULAR = {"are": "is", "have": "has"}


def listed(names: Iterable[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def conjugate(verb: str, who: Sized) -> str:
    """Return `waits` for one, `wait` for several."""
    return verb if len(who) > 1 else SINGULAR.get(verb, f"{verb}s")


def signal_name(number: int) -> str:
    """Return what a signal is called; "" if the number is none that has a name."""
    return {known.value: known.name for known in signal.Signals}.get(number, "")


def ended_by(code: int) -> str:
    """Return how a process has ended with a negative exit code, by which signal."""
    return f"was ended by {signal_name(-code) or f'signal {-code}'}"
