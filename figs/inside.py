"""Figures of the lesson inside DDP: what a run did while backward() went on."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ddp_lab.kit.draw.colors import GREY, INK, PALE, RULE, rank_color, tint
from figs.page import Page, page

LEFT, WIDE = 172, 508  # where the lanes begin, and how wide they are
LANE, TRIP, RUN, TOP = 24, 15, 34, 84  # heights: backward, a bucket, a run, the head
GAP = 18  # between two ranks


class Diary(TypedDict):
    """One rank's backward(), in seconds of a clock that the ranks share."""

    start: float
    made: Sequence[float]
    """When each gradient was added up."""
    trips: Sequence[Sequence[float]]
    """When each bucket left, and when it arrived."""
    end: float


def overlap(runs: Mapping[str, Sequence[Diary]]) -> Page:
    """Draw backward() and the buckets' trips, for each run and each rank.

    Args:
        runs: by the run's name, the diary of each rank, of the same step.

    Returns:
        The figure; all runs have one scale, and each begins at its own start.
    """
    begins = {name: min(d["start"] for d in ds) for name, ds in runs.items()}
    seconds = max(d["end"] - begins[name] for name, ds in runs.items() for d in ds)
    heights = [_height(diary) for diaries in runs.values() for diary in diaries]
    told = [
        f"{name}, rank {rank}: {early(diary)} of {len(diary['trips'])} left early"
        for name, diaries in runs.items()
        for rank, diary in enumerate(diaries)
    ]
    svg = page(
        "backward(), and each bucket on its way",
        "Number: the bucket that a gradient fills. Dashed: the last gradient is made.",
        f"When buckets left and arrived, beside backward(). {'; '.join(told)}.",
        TOP + RUN * len(runs) + sum(heights) + 30,
    )
    bottom = svg.height - 30
    _draw_ticks(svg, bottom, seconds)
    y = float(TOP)
    for name, diaries in runs.items():
        svg.text(40, y + 14, name, 14, anchor="start", bold=True)
        y += RUN
        for rank, diary in enumerate(diaries):
            _draw_rank(svg, y, rank, diary, (begins[name], WIDE / seconds))
            y += _height(diary)
    return svg


def early(diary: Diary) -> int:
    """Count the buckets that left before the last gradient was made."""
    return sum(trip[0] < diary["made"][-1] for trip in diary["trips"])


def _height(diary: Diary) -> int:
    return LANE + TRIP * len(diary["trips"]) + GAP


def _draw_ticks(svg: Page, bottom: float, seconds: float) -> None:
    """Draw a line for each of a few round numbers of milliseconds."""
    steps = (n * 10**k for k in range(-2, 6) for n in (1, 2, 5))
    step = next(step for step in steps if 1000 * seconds / step <= 6)
    for turn in range(int(1000 * seconds / step) + 1):
        x = LEFT + WIDE * turn * step / 1000 / seconds
        svg.line(x, TOP + RUN, x, bottom, stroke=RULE, width=1)
        unit = " ms" if turn == 0 else ""
        svg.text(x, bottom + 14, f"{turn * step:g}{unit}", 12, fill=GREY)


def _draw_rank(
    svg: Page, y: float, rank: int, diary: Diary, scale: tuple[float, float]
) -> None:
    """Draw the lanes of a rank; `scale` is the first second, and pixels for one."""
    begin, pixels = scale

    def at(second: float) -> float:
        return round(LEFT + (second - begin) * pixels, 1)

    color, trips = rank_color(rank), diary["trips"]
    svg.text(40, y + LANE / 2, f"rank {rank}", 13, anchor="start", bold=True)
    svg.text(LEFT - 8, y + LANE / 2, "backward", 12, fill=GREY, anchor="end")
    for a, b in zip([diary["start"], *diary["made"]], diary["made"], strict=False):
        x, width = at(a), round(at(b) - at(a), 1)
        if width > 3:  # those of biases are too thin to see
            fill = tint(color, 0.6)
            svg.box(x, y, width, LANE, fill=fill, stroke=color, radius=0)
        if width > 12:  # a gradient fills the bucket that leaves next
            number = sum(trip[0] < b for trip in trips)
            svg.text(x + width / 2, y + LANE / 2, str(number), 12)
    last, down = at(diary["made"][-1]), y + LANE + TRIP * len(trips)
    width = round(at(diary["end"]) - last, 1)
    svg.box(last, y, width, LANE, fill=PALE, radius=0)
    if width > 44:
        svg.text(last + width / 2, y + LANE / 2, "waits", 12, fill=GREY)
    for number, (leaves, arrives) in enumerate(trips):
        top, x = y + LANE + TRIP * number, at(leaves)
        name = f"bucket {number}"
        svg.text(LEFT - 8, top + TRIP / 2, name, 11, fill=GREY, anchor="end")
        width = max(round(at(arrives) - x, 1), 1)
        svg.box(x, top + 3, width, TRIP - 5, fill=color, stroke=color, radius=0)
    svg.line(last, y - 3, last, down + 3, stroke=INK, width=2, dash="4 3")
