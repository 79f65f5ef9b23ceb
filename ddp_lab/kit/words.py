"""Words that several rooms need."""

from collections.abc import Iterable, Sized

SINGULAR = {"are": "is"}


def listed(names: Iterable[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def conjugate(verb: str, who: Sized) -> str:
    """Return `is` for one, `are` for several."""
    return verb if len(who) > 1 else SINGULAR.get(verb, f"{verb}s")
