"""Measure the lab, side by side in one run: `make bench`.

Each measurement is a pair or a row of competitors that take turns, so that a busy
moment hits them all; what counts is the median of their ratios, with the smallest and
the largest beside it. Times in seconds belong to one machine, whose name they bear.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from ddp_lab import ROOT

FOLDER = ROOT / "build" / "bench"


@dataclass(frozen=True)
class Timing:
    """The times of one competitor."""

    name: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def ratio(self, other: "Timing") -> tuple[float, float, float]:
        """Return how many times as long `other` took: median, least, most of pairs."""
        pairs = zip(other.seconds, self.seconds, strict=True)
        ratios = sorted(theirs / ours for theirs, ours in pairs)
        return statistics.median(ratios), ratios[0], ratios[-1]


@dataclass(frozen=True)
class Result:
    """Competitors that did the same; the first one is what the others are held to."""

    section: str
    what: str
    timings: list[Timing]
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    """What follows from the medians: by the competitor's name, then by the unit."""

    def rows(self) -> list[list[str]]:
        """Return a row of the printed table for each competitor."""
        first, rows = self.timings[0], []
        for timing in self.timings:
            median, least, most = timing.ratio(first)
            low, high = min(timing.seconds), max(timing.seconds)
            times = f"{written(timing.median)} ({written(low)} to {written(high)})"
            ratio = f"{median:.2f} ({least:.2f} to {most:.2f})"
            ratio = "" if timing is first else ratio
            rates = self.rates.get(timing.name, {})
            rate = ", ".join(f"{three_digits(r)} {unit}" for unit, r in rates.items())
            rows.append([self.section, self.what, timing.name, times, ratio, rate])
        return rows

    def as_json(self) -> dict:
        """Return everything as JSON takes it."""
        return asdict(self)


def interleaved(
    competitors: Mapping[str, Callable[[], float | None]], rounds: int, warm: int = 1
) -> list[Timing]:
    """Let the competitors take turns; return their timings.

    Args:
        competitors: by name, what to do. It is timed, unless it returns seconds itself.
        rounds: how often.
        warm: how often before, uncounted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(warm + rounds):
        for name, work in competitors.items():
            start = time.perf_counter()
            own = work()
            taken = time.perf_counter() - start if own is None else own
            if turn >= warm:
                seconds[name].append(taken)
    return [Timing(name, times) for name, times in seconds.items()]


def written(seconds: float) -> str:
    """Return a time with three digits that count, and its unit."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return f"{three_digits(seconds * scale)} {unit}"
    raise AssertionError("unreachable")


def three_digits(number: float) -> str:
    """Return `number` rounded to three digits that count, and never as 1e+03."""
    return f"{float(f'{number:.3g}'):,.15g}"
