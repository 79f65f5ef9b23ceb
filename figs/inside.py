"""Figures of the lesson inside DDP: what a run did while backward() went on."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ddp_lab.kit.draw.colours import GREY, RULE, rank_colour, tint
from ddp_lab.kit.draw.svg import Svg, page

LEFT, WIDE = 172, 508  # where the lanes begin, and how wide they are
LANE, RANK, RUN, TOP = 24, 66, 34, 84  # heights: a lane, a rank, a run's name, the head


class Diary(TypedDict):
    """One rank's backward(), in seconds of a clock that the ranks share."""

    start: float
    made: Sequence[float]
    """When each gradient was added up."""
    trips: Sequence[Sequence[float]]
    """When each bucket left, and when it arrived."""
    end: float


def overlap(runs: Mapping[str, Sequence[Diary]]) -> Svg:
    """Draw backward() and the buckets' trips, for each run and each rank.

    Args:
        runs: by the run's name, the diary of each rank, of the same step.

    Returns:
        The figure; all runs have one scale, and each begins at its own start.
    """
    begins = {name: min(d["start"] for d in ds) for name, ds in runs.items()}
    seconds = max(d["end"] - begins[name] for name, ds in runs.items() for d in ds)
    ranks = sum(len(diaries) for diaries in runs.values())
    told = [
        f"{name}, rank {rank}: {early(diary)} of {len(diary['trips'])} left early"
        for name, diaries in runs.items()
        for rank, diary in enumerate(diaries)
    ]
    svg = page(
        "backward() and the buckets on their way",
        "Upper lane: a box for each gradient. Lower lane: a box for each bucket.",
        f"When buckets left and arrived, beside backward(). {'; '.join(told)}.",
        TOP + RUN * len(runs) + RANK * ranks + 30,
    )
    y = float(TOP)
    for name, diaries in runs.items():
        svg.text(40, y + 14, name, 14, anchor="start", bold=True)
        y += RUN
        for rank, diary in enumerate(diaries):
            _draw_rank(svg, y, rank, diary, (begins[name], WIDE / seconds))
            y += RANK
    svg.line(LEFT, y, LEFT + WIDE, y, stroke=RULE)
    svg.text(LEFT, y + 14, "0 ms", 12, fill=GREY, anchor="start")
    end = f"{1000 * seconds:.1f} ms"
    svg.text(LEFT + WIDE, y + 14, end, 12, fill=GREY, anchor="end")
    return svg


def early(diary: Diary) -> int:
    """Count the buckets that left before the last gradient was made."""
    return sum(trip[0] < diary["made"][-1] for trip in diary["trips"])


def _draw_rank(
    svg: Svg, y: float, rank: int, diary: Diary, scale: tuple[float, float]
) -> None:
    """Draw the two lanes of a rank; `scale` is the first second, and pixels for one."""
    begin, pixels = scale

    def at(second: float) -> float:
        return LEFT + (second - begin) * pixels

    colour = rank_colour(rank)
    svg.text(40, y + LANE / 2, f"rank {rank}", 13, anchor="start", bold=True)
    svg.text(LEFT - 8, y + LANE / 2, "backward", 12, fill=GREY, anchor="end")
    svg.text(LEFT - 8, y + 1.5 * LANE + 4, "on its way", 12, fill=GREY, anchor="end")
    for a, b in zip([diary["start"], *diary["made"]], diary["made"], strict=False):
        fill = tint(colour, 0.6)
        svg.box(at(a), y, at(b) - at(a), LANE, fill=fill, stroke=colour, radius=0)
    last = diary["made"][-1]
    svg.wait(at(last), y, at(diary["end"]) - at(last), LANE)
    for number, (leaves, arrives) in enumerate(diary["trips"]):
        x, width = at(leaves), max(at(arrives) - at(leaves), 1)
        fill = tint(colour, 0.2)
        svg.box(x, y + LANE + 4, width, LANE, fill=fill, stroke=colour, radius=0)
        if width > 16:
            svg.label(x, y + LANE + 4, width, LANE, str(number), 12)
