"""What became of a case, in one line, and how numbers are compared for it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

QUOTED = 6  # numbers of a tensor that a verdict quotes
DIGITS = 6  # of each; more where it takes more to see a difference


@dataclass(frozen=True)
class Verdict:
    """What became of one case, or of a criterion with all its cases."""

    state: str
    """"pass", "fail", "blocked" (could not be judged here) or "not yet" (a stub)."""
    words: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.words}" if self.words else self.state


PASS = Verdict("pass")


class Decided(Exception):
    """Raised where a verdict is clear before a criterion has come to its end."""

    def __init__(self, verdict: Verdict):
        super().__init__(str(verdict))
        self.verdict = verdict


def fail(words: str) -> Verdict:
    """Return the verdict of a wrong answer."""
    return Verdict("fail", words)


def blocked(words: str) -> Verdict:
    """Return the verdict of a case that cannot be judged here, and why."""
    return Verdict("blocked", words)


def compare(
    rank: int, expected: ArrayLike, got: object, *, rtol: float = 0.0, atol: float = 0.0
) -> str | None:
    """Return how `got` of this rank differs from `expected`; None if it does not.

    Shapes must be the same, and so must dtypes if `expected` is an array (bfloat16
    arrives as float32). NaN equals nothing.
    """
    typed, expected = isinstance(expected, np.ndarray), np.asarray(expected)
    if not isinstance(got, np.ndarray):
        return f"rank {rank} expected {_quote(expected)}, got {str(got)[:80]}"
    if got.shape != expected.shape:
        shapes = f"shape {expected.shape}, got {got.shape}"
        return f"rank {rank} expected {shapes}"
    if typed and got.dtype != expected.dtype:
        return f"rank {rank} expected {expected.dtype}, got {got.dtype}"
    with np.errstate(all="ignore"):
        same = got == expected
        if rtol or atol:
            difference = np.abs(got.astype(np.float64) - expected)
            same |= difference <= atol + rtol * np.abs(expected)
    if same.all():
        return None
    wrong = np.flatnonzero(~np.ravel(same))
    first = int(wrong[0])
    digits = _digits(np.ravel(expected)[first], np.ravel(got)[first])
    text = f"rank {rank} expected {_quote(expected, digits)}"
    text += f", got {_quote(got, digits)}"
    if expected.size > 1:
        where = f"first at {first}"
        if first >= QUOTED:
            values = (_number(np.ravel(v)[first], digits) for v in (expected, got))
            where += ": {} expected, {} got".format(*values)
        text += f" ({len(wrong):,} of {expected.size:,} numbers differ, {where})"
    return text


def _digits(expected: np.generic, got: np.generic) -> int:
    """Return how many digits show that two numbers differ, DIGITS or more."""
    enough = (d for d in range(DIGITS, 17) if _number(expected, d) != _number(got, d))
    return next(enough, 17)  # which tell any two numbers apart


def _quote(values: np.ndarray, digits: int = DIGITS) -> str:
    text = ", ".join(_number(value, digits) for value in np.ravel(values)[:QUOTED])
    if values.ndim == 0:
        return text
    return f"[{text}{', …' if values.size > QUOTED else ''}]"


def _number(value: np.generic, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, np.floating) else str(value)
