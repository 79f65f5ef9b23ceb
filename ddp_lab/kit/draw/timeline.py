"""What was when, as bars over a scale of seconds.

`timeline` has a row for each rank, and a bar for each thing that it did; `timelines`
are several over one scale. `lives` has a row for each place where ranks have lived, and
events as marks.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ddp_lab.kit.draw.colors import GREY, INK, RULE, rank_color, text_on, tint
from ddp_lab.kit.draw.svg import Svg, text_width
from ddp_lab.kit.draw.values import CHIP, MARGIN, PAGE, write_title
from whichrank import Life

NAMES = 116  # the width of the column with the places
ROW, BAR, BETWEEN = 30, 22, 10  # heights: of a row, of a bar in it, between two nodes
RANK_ROW, RANK_BAR = 46, 30  # the same of a rank that does several things
LINE = 18  # height of a line of events
AXIS = 40  # height of the scale below
# Seconds between ticks.
STEPS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 20, 60, 120, 300, 600),
)
MOST_TICKS = 10
WELL = ("done", "asked to end", "")

Did = Sequence
"""What a rank did: [label, start, end], both in seconds."""


class Scale:
    """Where on a page a time is, from the first to the last, beside `left` pixels."""

    def __init__(self, svg: Svg, left: float, first: float, last: float):
        self.svg, self.left, self.right = svg, left, PAGE - MARGIN - 12
        self.first, self.span = first, last - first

    def x(self, seconds: float) -> float:
        """Return where a time is."""
        share = (seconds - self.first) / self.span
        return self.left + max(share, 0.0) * (self.right - self.left)

    def draw(self, y: float, words: str, top: float) -> None:
        """Draw the scale at height `y`, `words` below it, and lines up to `top`."""
        self.svg.line(self.left, y, self.right, y, stroke=RULE)
        step = next((s for s in STEPS if self.span / s <= MOST_TICKS), STEPS[-1])
        for number in range(int(self.span / step) + 1):
            x = self.x(self.first + number * step)
            self.svg.line(x, top, x, y + 5, stroke=RULE, width=0.5)
            self.svg.text(x, y + 14, f"{number * step:g}", 12, fill=GREY)
        self.svg.text(self.right, y + 30, words, 12, anchor="end", fill=GREY)


def timeline(rows: Sequence[Sequence[Did]], title: str, seconds: float = 0.0) -> Svg:
    """Draw what each rank did when: a bar for each thing, rank 0 on top.

    Time counts from the first start. A label is written into its bar where it fits.
    What starts with "wait" is hatched in gray, all else has its rank's color.

    Args:
        rows: by rank, things as [label, start, end], in seconds of a clock that the
            ranks share.
        title: what the picture shows.
        seconds: how long the scale is at least.

    Raises:
        ValueError: if there is nothing at all, or something ends before it starts.
    """
    bars = [(rank, *did) for rank, row in enumerate(rows) for did in row]
    if not bars or any(end < start for *_, start, end in bars):
        raise ValueError(f"there is nothing to draw, or it ends too soon: {title}")
    first, last = min(bar[2] for bar in bars), max(bar[3] for bar in bars)
    svg = Svg(title, _spoken(rows, first), PAGE)
    top = 22 + 22 * write_title(svg)
    svg.height = top + RANK_ROW * len(rows) + AXIS
    last = max(last, first + STEPS[0], first + seconds)
    scale = Scale(svg, MARGIN + CHIP + 10, first, last)
    scale.draw(svg.height - AXIS, "seconds", top)
    for rank in range(len(rows)):
        svg.chip(MARGIN, top + rank * RANK_ROW, CHIP, RANK_BAR, rank)
    for rank, label, start, end in bars:
        x, y = scale.x(start), top + rank * RANK_ROW
        box = x, y, scale.x(end) - x, RANK_BAR
        text = label if text_width(label, 12) + 6 <= box[2] else ""
        if label.startswith("wait"):
            svg.wait(*box, text)
        else:
            color = rank_color(rank)
            svg.box(*box, fill=tint(color, 0.4), stroke=color, radius=0)
            svg.text(x + box[2] / 2, y + RANK_BAR / 2, text, 12)
    return svg


def timelines(pictures: Mapping[str, Sequence[Sequence[Did]]]) -> list[Svg]:
    """Draw what is to be compared, by title, over one scale."""
    lasts = []
    for rows in pictures.values():
        bars = [did for row in rows for did in row]
        lasts.append(max(bar[2] for bar in bars) - min(bar[1] for bar in bars))
    return [timeline(rows, title, max(lasts)) for title, rows in pictures.items()]


def _spoken(rows: Sequence[Sequence[Did]], first: float) -> str:
    """Say in words what each rank did, and when."""
    return "; ".join(
        f"rank {rank}: "
        + ", ".join(
            f"{name} {a - first:.3f} to {b - first:.3f} s" for name, a, b in row
        )
        for rank, row in enumerate(rows)
    )


def lives(run: Any) -> Svg:
    """Draw when each rank of a run was alive, on which node, and how it ended.

    A row is a place: a local rank of a node. A bar is a life, in the color of its
    global rank, which another attempt may give to another place. A cross marks a life
    that ended by failing, or was killed; what happened to the nodes stands above.

    Args:
        run: a `whichrank.Run`, of which this room knows the lives, the
            events and the seconds.
    """
    first = min((life.start for life in run.lives), default=0.0)
    times = [life.end or run.seconds for life in run.lives]
    last = max([*times, *(event.time for event in run.events), first + 0.1])
    rows, bottom = _rows(run)
    svg = Svg("Who was alive when", _spoken_lives(run, first), PAGE, bottom + AXIS)
    scale = Scale(svg, MARGIN + NAMES, first, last)
    scale.draw(bottom, "seconds since the first rank was started", bottom)
    for node, places in groupby(rows, lambda place: place[0]):
        heights = [rows[place] for place in places]
        middle = (heights[0] + heights[-1] + ROW) / 2
        svg.text(MARGIN, middle, f"node {node}", 14, anchor="start", bold=True)
    for (_, local), y in rows.items():
        x = scale.left - 8
        svg.text(x, y + ROW / 2, f"local {local}", 12, anchor="end", fill=GREY)
    for number, event in enumerate(run.events):
        _event(scale, event.time, str(event), MARGIN + LINE * number, bottom)
    for life in run.lives:
        end = last if life.end is None else life.end
        _bar(scale, life, end, rows[life.node, life.local_rank] + (ROW - BAR) / 2)
    return svg


def _rows(run: Any) -> tuple[dict[tuple[int, int], float], float]:
    """Return the upper edge of the row of each node and local rank, and the lowest."""
    top = MARGIN + LINE * len(run.events) + 6
    places = sorted({(life.node, life.local_rank) for life in run.lives})
    nodes = [*dict.fromkeys(node for node, _ in places)]
    rows: dict[tuple[int, int], float] = {
        place: top + ROW * i + BETWEEN * nodes.index(place[0])
        for i, place in enumerate(places)
    }
    return rows, top + ROW * len(rows) + BETWEEN * len(nodes)


def _event(scale: Scale, at: float, what: str, y: float, bottom: float) -> None:
    """Draw a line through all rows, and say above what happened."""
    svg, x, wide = scale.svg, scale.x(at), text_width(what, 12)
    svg.line(x, y + LINE, x, bottom, stroke=INK, dash="3 3")
    if x + wide / 2 > PAGE - MARGIN:
        svg.text(PAGE - MARGIN, y + LINE / 2, what, 12, anchor="end")
    else:
        svg.text(max(x, MARGIN + wide / 2), y + LINE / 2, what, 12)


def _bar(scale: Scale, life: Life, end: float, y: float) -> None:
    """Draw one life, and a cross where it did not end well."""
    svg, x, color = scale.svg, scale.x(life.start), rank_color(life.rank)
    wide = max(scale.x(end) - x, 3.0)
    svg.box(x, y, wide, BAR, fill=color, stroke="none", radius=3)
    name = f"rank {life.rank}"
    name = name if text_width(name, 12, bold=True) < wide - 6 else str(life.rank)
    if text_width(name, 12, bold=True) < wide - 2:
        svg.text(x + wide / 2, y + BAR / 2, name, 12, fill=text_on(color))
    if life.how not in WELL:
        x, y = x + wide, y + BAR / 2
        for slope in (-1, 1):
            svg.line(x - 5, y - 5 * slope, x + 5, y + 5 * slope, width=2.5)


def _spoken_lives(run: Any, first: float) -> str:
    """Say in words what the picture of lives shows."""
    words = [
        f"{life.place}: rank {life.rank} of {life.world_size} from "
        f"{life.start - first:.1f} s"
        + (f" to {life.end - first:.1f} s, {life.how}" if life.end else "")
        for life in run.lives
    ]
    words += [f"after {each.time - first:.1f} s: {each}" for each in run.events]
    return "; ".join(words) + "."
