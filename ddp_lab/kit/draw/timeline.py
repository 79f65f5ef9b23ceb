"""Who was alive when: a row for each place where ranks have lived, events as marks."""

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from ddp_lab.kit.draw.colours import GREY, INK, RULE, rank_colour, text_on
from ddp_lab.kit.draw.svg import Svg, text_width
from ddp_lab.kit.record.lives import Life

PAGE, MARGIN = 720, 16
NAMES = 116  # the width of the column with the places
ROW, BAR, BETWEEN = 30, 22, 10  # heights: of a row, of a bar in it, between two nodes
LINE = 18  # height of a line of events
AXIS = 40  # height of the scale below
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)  # seconds between ticks
MOST_TICKS = 10
WELL = ("done", "asked to end", "")


class Lived(Protocol):
    """What of a run is drawn; see `ddp_lab.kit.run.result.Run`."""

    @property
    def lives(self) -> list[Life]: ...
    @property
    def events(self) -> list[tuple[float, str]]: ...
    @property
    def seconds(self) -> float: ...


def lives(run: Lived) -> Svg:
    """Draw when each rank of a run was alive, on which node, and how it ended.

    A row is a place: a local rank of a node. A bar is a life, in the colour of its
    global rank, which another attempt may give to another place. A cross marks a life
    that ended by failing, or was killed; what happened to the nodes stands above.
    """
    drawing = _Drawing(run)
    for height, (node, locals_) in zip(drawing.tops, drawing.nodes, strict=True):
        drawing.names(height, node, locals_)
    drawing.axis()
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
        self.first = min((life.start for life in run.lives), default=0.0)
        times = [life.end or run.seconds for life in run.lives]
        self.last = max([*times, *(at for at, _ in run.events), self.first + 0.1])
        self.left, self.right = MARGIN + NAMES, PAGE - MARGIN - 12
        top = MARGIN + LINE * len(run.events) + 6
        self.tops = []
        for _, locals_ in self.nodes:
            self.tops.append(top)
            top += ROW * len(locals_) + BETWEEN
        self.bottom = top
        desc = _told(run.lives, run.events)
        self.svg = Svg("Who was alive when", desc, PAGE, top + AXIS)

    def x(self, seconds: float) -> float:
        """Return where on the page a time is."""
        share = (seconds - self.first) / (self.last - self.first)
        return self.left + max(share, 0.0) * (self.right - self.left)

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
            x = self.left - 8
            self.svg.text(x, y, f"local {local}", 12, anchor="end", fill=GREY)

    def axis(self) -> None:
        """Draw the scale, in seconds."""
        span, y = self.last - self.first, self.bottom
        self.svg.line(self.left, y, self.right, y, stroke=RULE)
        step = next((s for s in STEPS if span / s <= MOST_TICKS), STEPS[-1])
        for number in range(int(span / step) + 1):
            x = self.x(self.first + number * step)
            self.svg.line(x, y, x, y + 5, stroke=RULE)
            self.svg.text(x, y + 14, f"{number * step:g}", 12, fill=GREY)
        words = "seconds since the first rank was started"
        self.svg.text(self.right, y + 30, words, 12, anchor="end", fill=GREY)

    def event(self, number: int, at: float, what: str) -> None:
        """Draw a line through all rows, and say above what happened."""
        x, y = self.x(at), MARGIN + LINE * number + LINE / 2
        self.svg.line(x, y + LINE / 2, x, self.bottom, stroke=INK, dash="3 3")
        wide = text_width(what, 12)
        if x + wide / 2 > PAGE - MARGIN:
            self.svg.text(PAGE - MARGIN, y, what, 12, anchor="end")
        else:
            self.svg.text(max(x, MARGIN + wide / 2), y, what, 12)

    def bar(self, life: Life) -> None:
        """Draw one life."""
        end = self.last if life.end is None else life.end
        x, y = self.x(life.start), self.y(life) + (ROW - BAR) / 2
        wide = max(self.x(end) - x, 3.0)
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
