"""Tell of the attempts before the last one: `torchrun --max-restarts` hides them."""

import re
from dataclasses import dataclass

from ddp_lab.kit.record.files import shorten
from ddp_lab.kit.record.words import listed

MOST = 5  # ways to fail that are told
BUG = "this is a bug, not a fault, and restarting does not help"
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment helps"
TIMES = {1: "once", 2: "twice"}


@dataclass(frozen=True)
class Attempt:
    """Why one attempt failed; the words are those of failure.Failure."""

    kind: str
    rank: int | None
    cause: str
    where: str | None = None
    line: int | None = None


def restarted(earlier: list[Attempt]) -> list[str]:
    """Return the note of a run that succeeded after these failures, if any."""
    if not earlier:
        return []
    count = len(earlier)
    times = TIMES.get(count, f"{count} times")
    return [f"restarted {times}: {'; '.join(_told(earlier, count + 1))}"]


def before(
    earlier: list[Attempt], last: Attempt, may_be_a_bug: bool = True
) -> list[str]:
    """Return what is told of the attempts before the last one, which failed too."""
    if not earlier:
        return []
    count = len(earlier) + 1
    same = sum(_way(failure) == _way(last) for failure in earlier)
    lines = _told(earlier, count)
    if not (same and last.line and may_be_a_bug):
        return lines
    if same == len(earlier):
        many = "both attempts" if count == 2 else f"all {count} attempts"
        return [f"the same error at the same line in {many}: {BUG}"]
    return [*lines, f"the same as now in {same + 1} of {count} attempts: {BUG}"]


def never_met(cause: str) -> str:
    """Return what is told of an attempt whose ranks did not find each other.

    The ranks of all attempts share torchrun's store, unless the variable is set, and
    gloo finds there the addresses of ranks that have gone.
    """
    said = f"torchrun restarted the ranks, which did not meet again: {shorten(cause)}"
    return f"{said}; {OWN_STORE}"


def _told(failures: list[Attempt], count: int) -> list[str]:
    """Return a line for each way in which attempts have failed."""
    ways: dict[tuple, list[int]] = {}
    for number, failure in enumerate(failures, 1):
        ways.setdefault(_way(failure), []).append(number)
    told = list(ways.values())[:MOST]
    lines = [
        f"{_names(numbers)} of {count} {_brief(failures[numbers[0] - 1])}"
        for numbers in told
    ]
    rest = len(failures) - sum(map(len, told))
    return [*lines, f"{rest} more failed in other ways"] if rest else lines


def _brief(failure: Attempt) -> str:
    """Return how an attempt ended."""
    if failure.kind == "node":  # which is no failure of the attempt's own
        return f"ended: {failure.cause}"
    who = "the run" if failure.rank is None else f"rank {failure.rank}"
    at = f" at {failure.where}" if failure.where else ""
    return f"failed: {who}: {shorten(failure.cause)}{at}"


def _way(failure: Attempt) -> tuple:
    """Return what two failures have in common that are the same.

    The message of an exception may name a step or an address.
    """
    said = failure.kind == "exception"
    cause = re.sub(r"\d+", "0", failure.cause) if said else failure.cause
    return failure.kind, cause, failure.line


def _names(numbers: list[int]) -> str:
    """Return `attempt 1`, `attempts 1 and 3`, or `attempts 1 to 9`."""
    if len(numbers) == 1:
        return f"attempt {numbers[0]}"
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and numbers == [*range(first, last + 1)]:
        return f"attempts {first} to {last}"
    return f"attempts {listed(map(str, numbers))}"
