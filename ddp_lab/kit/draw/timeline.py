"""What was when, as bars over a scale of seconds.

`timeline` has a row for each rank, and a bar for each thing that it did. `lives` has a
row for each place where ranks have lived, and events as marks.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from ddp_lab.kit.draw.colours import GREY, INK, RULE, rank_colour, text_on, tint
from ddp_lab.kit.draw.svg import Svg, text_width
from ddp_lab.kit.draw.values import CHIP, MARGIN, PAGE, write_title
from ddp_lab.kit.record.lives import Life

NAMES = 116  # the width of the column with the places
ROW, BAR, BETWEEN = 30, 22, 10  # heights: of a row, of a bar in it, between two nodes
RANK_ROW, RANK_BAR = 46, 30  # the same of a rank that does several things
LINE = 18  # height of a line of events
AXIS = 40  # height of the scale below
# Seconds between ticks.
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
LONG_STEPS = (120, 300, 600)
MOST_TICKS = 10
WELL = ("done", "asked to end", "")

Did = Sequence
"""What a rank did: [label, start, end], both in seconds."""


class Lived(Protocol):
    """What of a run is drawn; see `ddp_lab.kit.run.result.Run`."""

    @property
    def lives(self) -> list[Life]: ...
    @property
    def events(self) -> list[tuple[float, str]]: ...
    @property
    def seconds(self) -> float: ...


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
        steps = (*STEPS, *LONG_STEPS)
        step = next((s for s in steps if self.span / s <= MOST_TICKS), steps[-1])
        for number in range(int(self.span / step) + 1):
            x = self.x(self.first + number * step)
            self.svg.line(x, top, x, y + 5, stroke=RULE, width=0.5)
            self.svg.text(x, y + 14, f"{number * step:g}", 12, fill=GREY)
        self.svg.text(self.right, y + 30, words, 12, anchor="end", fill=GREY)


def timeline(rows: Sequence[Sequence[Did]], title: str) -> Svg:
    """Draw what each rank did when: a bar for each thing, rank 0 on top.

    Time counts from the first start. A label is written into its bar where it fits.
    What starts with "wait" is hatched in grey, all else has its rank's colour.

    Args:
        rows: by rank, things as [label, start, end], in seconds of a clock that the
            ranks share.
        title: what the picture shows.

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
    scale = Scale(svg, MARGIN + CHIP + 10, first, max(last, first + STEPS[0]))
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
            colour = rank_colour(rank)
            svg.box(*box, fill=tint(colour, 0.4), stroke=colour, radius=0)
            svg.text(x + box[2] / 2, y + RANK_BAR / 2, text, 12)
    return svg


def _spoken(rows: Sequence[Sequence[Did]], first: float) -> str:
    """Say in words what each rank did, and when."""
    return "; ".join(
        f"rank {rank}: "
        + ", ".join(
            f"{name} {a - first:.3f} to {b - first:.3f} s" for name, a, b in row
        )
        for rank, row in enumerate(rows)
    )


def lives(run: Lived) -> Svg:
    """Draw when each rank of a run was alive, on which node, and how it ended.

    A row is a place: a local rank of a node. A bar is a life, in the colour of its
    global rank, which another attempt may give to another place. A cross marks a life
    that ended by failing, or was killed; what happened to the nodes stands above.
    """
    drawing = _Drawing(run)
    for height, (node, locals_) in zip(drawing.tops, drawing.nodes, strict=True):
        drawing.names(height, node, locals_)
    for number, (at, what) in enumerate(drawing.events):
        drawing.event(number, at, what)
    for life in run.lives:
        drawing.bar(life)
    return drawing.svg


class _Drawing:
    """The page, and where on it a time and a place are."""

    def __init__(self, run: Lived):
        places = sorted({(life.node, life.local_rank) for life in run.lives})
        groups = groupby(places, key=lambda place: place[0])
        self.nodes = [(node, [local for _, local in each]) for node, each in groups]
        self.events = run.events
        first = min((life.start for life in run.lives), default=0.0)
        times = [life.end or run.seconds for life in run.lives]
        self.last = max([*times, *(at for at, _ in run.events), first + 0.1])
        top = MARGIN + LINE * len(run.events) + 6
        self.tops = []
        for _, locals_ in self.nodes:
            self.tops.append(top)
            top += ROW * len(locals_) + BETWEEN
        self.bottom = top
        desc = _told(run.lives, run.events)
        self.svg = Svg("Who was alive when", desc, PAGE, top + AXIS)
        self.scale = Scale(self.svg, MARGIN + NAMES, first, self.last)
        words = "seconds since the first rank was started"
        self.scale.draw(self.bottom, words, self.bottom)

    def y(self, life: Life) -> float:
        """Return the upper edge of a life's row."""
        which = next(i for i, (node, _) in enumerate(self.nodes) if node == life.node)
        row = self.nodes[which][1].index(life.local_rank)
        return self.tops[which] + row * ROW

    def names(self, top: float, node: int, locals_: Sequence[int]) -> None:
        """Write the places of one node."""
        middle = top + ROW * len(locals_) / 2
        self.svg.text(MARGIN, middle, f"node {node}", 14, anchor="start", bold=True)
        for row, local in enumerate(locals_):
            y = top + row * ROW + ROW / 2
            x = self.scale.left - 8
            self.svg.text(x, y, f"local {local}", 12, anchor="end", fill=GREY)

    def event(self, number: int, at: float, what: str) -> None:
        """Draw a line through all rows, and say above what happened."""
        x, y = self.scale.x(at), MARGIN + LINE * number + LINE / 2
        self.svg.line(x, y + LINE / 2, x, self.bottom, stroke=INK, dash="3 3")
        wide = text_width(what, 12)
        if x + wide / 2 > PAGE - MARGIN:
            self.svg.text(PAGE - MARGIN, y, what, 12, anchor="end")
        else:
            self.svg.text(max(x, MARGIN + wide / 2), y, what, 12)

    def bar(self, life: Life) -> None:
        """Draw one life."""
        end = self.last if life.end is None else life.end
        x, y = self.scale.x(life.start), self.y(life) + (ROW - BAR) / 2
        wide = max(self.scale.x(end) - x, 3.0)
        colour = rank_colour(life.rank)
        self.svg.box(x, y, wide, BAR, fill=colour, stroke="none", radius=3)
        name = f"rank {life.rank}"
        name = name if text_width(name, 12, bold=True) < wide - 6 else str(life.rank)
        if text_width(name, 12, bold=True) < wide - 2:
            self.svg.text(x + wide / 2, y + BAR / 2, name, 12, fill=text_on(colour))
        if life.how not in WELL:
            self._cross(x + wide, y + BAR / 2)

    def _cross(self, x: float, y: float) -> None:
        for slope in (-1, 1):
            self.svg.line(x - 5, y - 5 * slope, x + 5, y + 5 * slope, width=2.5)


def _told(found: Sequence[Life], events: Sequence[tuple[float, str]]) -> str:
    """Say in words what the picture shows."""
    first = min((life.start for life in found), default=0.0)
    told = [
        f"{life.place}: rank {life.rank} of {life.world_size} from "
        f"{life.start - first:.1f} s"
        + (f" to {life.end - first:.1f} s, {life.how}" if life.end else "")
        for life in found
    ]
    told += [f"after {at - first:.1f} s: {what}" for at, what in events]
    return "; ".join(told) + "."
