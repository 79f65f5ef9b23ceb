"""Group the attempts before the last one: `torchrun --max-restarts` hides them."""

import re

from whichrank.explain.cause import Cause
from whichrank.explain.causes.beside import Attempts
from whichrank.explain.causes.ended import Raised


def compare(earlier: list[Cause], last: Cause | None = None) -> Attempts | None:
    """Return in which ways attempts have failed, if there were any.

    Args:
        earlier: why each of them failed, in their order.
        last: why the last one failed too; None if it did not, or if it could not fail
            as they did.
    """
    if not earlier:
        return None
    alike: dict[tuple, list[int]] = {}
    for number, cause in enumerate(earlier, 1):
        alike.setdefault((cause.rank, *_way(cause)), []).append(number)
    ways = [(tuple(numbers), earlier[numbers[0] - 1]) for numbers in alike.values()]
    same = last and last.frame and {*map(_way, earlier)} == {_way(last)}
    return Attempts(tuple(ways), len(earlier) + 1, bool(same))


def _way(cause: Cause) -> tuple:
    """Return what two failures have in common that are the same, on whichever rank.

    The message of an exception may name a step or an address.
    """
    error = re.sub(r"\d+", "0", cause.error) if isinstance(cause, Raised) else ""
    return cause.way, error, cause.frame.line if cause.frame else None
