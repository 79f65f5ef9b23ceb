"""What ranks did, one row for each: their messages and calls, and what they hold then.

What a rank did is a list of acts [name, peer, text]. ["send", 1, "5"] on rank 0 and
["recv", 0, ""] on rank 1 are a message. A call whose name begins with a word of
`TOGETHER` is made by all ranks together; the rest a rank does alone.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ddp_lab.kit.draw.colors import GREY, PALE, RULE, WHITE, rank_color, tint
from ddp_lab.kit.draw.svg import Style, Svg, text_width
from ddp_lab.kit.draw.values import CHIP, GAP, MARGIN, PAGE, Cell, cell_width
from ddp_lab.kit.draw.values import texts_by_rank as texts

WRONG = "#C0392B"
DIFFERS: Style = {"fill": "none", "stroke": WRONG, "width": 2, "dash": "4 3"}
PALER: Style = {"stroke": RULE}
PITCH, HIGH, BETWEEN, LANE, SIZE = 46, 28, 24, 32, 12
TOGETHER = ("all", "reduce", "broadcast", "scatter", "gather", "barrier")


class Act(NamedTuple):
    """What a rank did; a message is an act of its sender."""

    name: str
    rank: int
    peer: int | None
    text: str

    @property
    def waits(self) -> str:
        """Say that no other rank has done its part of it."""
        way = {"send": "to", "recv": "from"}.get(self.name)
        peer = f" {way} rank {self.peer}" if way else ""
        return f"rank {self.rank} waits in {self.name}{peer}"

    def __str__(self) -> str:
        """Say it in words."""
        if self.name == "send":
            return f"{self.rank} → {self.peer}: {self.text}"
        return f"rank {self.rank}: {self.name} {self.text}".rstrip()


@dataclass(frozen=True)
class Step:
    """What is drawn as one thing: a message, a common call, or what a rank does."""

    turn: int
    acts: tuple[Act, ...]
    done: bool  # or it waits for another rank

    @property
    def rows(self) -> set[int]:
        """The ranks from whose rows it is drawn."""
        act = self.acts[0]
        ends = [act.rank]
        if self.done:
            ends += [other.rank for other in self.acts]
            ends += [act.peer] if act.name == "send" and act.peer is not None else []
        return {*range(min(ends), max(ends) + 1)}

    @property
    def label(self) -> str:
        """What is written over it, or in the box of a rank."""
        act = self.acts[0]
        if self.done:
            return act.name if len(self.acts) > 1 else act.text
        arrow = {"send": "→ ", "recv": "← "}.get(act.name, "")
        return f"{act.name} {arrow}{act.peer} …" if arrow else f"{act.name} …"

    @property
    def width(self) -> float:
        """How much room it needs."""
        inside = max(text_width(act.text, SIZE) for act in self.acts)
        has_label = self.acts[0].name != "send" or not self.done
        over = text_width(self.label, SIZE) if has_label else 0
        return max(LANE, inside + 12, over + 10)


@dataclass
class Trace:
    """By rank what it did, as [name, peer, text], and what it holds at the end."""

    did: Sequence[Sequence[Sequence]]
    holds: Sequence

    @cached_property
    def each(self) -> dict[tuple[int, int], Act]:
        """The acts by rank and number."""
        return {
            (rank, i): Act(name, rank, peer, str(text))
            for rank, acts in enumerate(self.did)
            for i, (name, peer, text) in enumerate(acts)
        }

    @cached_property
    def acts(self) -> Counter[Act]:
        """What is compared: all but the receiving side of messages."""
        return Counter(act for act in self.each.values() if act.name != "recv")

    @cached_property
    def rows(self) -> list[list[str]]:
        """What each rank holds, as text."""
        return texts(self.holds)

    @cached_property
    def steps(self) -> list[Step]:
        """What there is to draw, in the order in which one waited for another."""
        parts = self._parts()
        known: dict[tuple[int, int], int] = {}

        def turn(key: tuple[int, int]) -> int:
            if key not in known:
                known[key] = 0  # where two acts wait for each other, none is later
                before = [b for part in parts[key] for b in self._before(part)]
                known[key] = max([0, *(turn(each) + 1 for each in before)])
            return known[key]

        steps = []
        for key, part in parts.items():
            acts = tuple(self.each[each] for each in part)
            if key != part[0]:
                continue  # drawn with the first of its part
            needs = {"send": 2, "recv": 2}.get(acts[0].name, 1)
            if acts[0].name.startswith(TOGETHER):
                needs = len(self.did)
            done = len(part) >= needs
            shown = acts[:1] if acts[0].name in ("send", "recv") else acts
            steps.append(Step(turn(key), shown, done))
        return sorted(steps, key=lambda step: (step.turn, min(step.rows)))

    def _before(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        """Return what an act follows on its rank; sends do not follow sends."""
        (rank, i), name = key, self.each[key].name
        names = {"send": ("send",), "recv": ("send", "recv")}.get(name, ())
        earlier = [(rank, j) for j in range(i)]
        return [each for each in earlier if self.each[each].name not in names]

    def _parts(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return by act those that belong together, a send first."""
        parts: dict[tuple, list[tuple[int, int]]] = {}
        counts: Counter[tuple] = Counter()
        for key, act in sorted(self.each.items(), key=lambda e: e[1].name == "recv"):
            way: tuple = (*key,)  # of what a rank does alone
            if act.name in ("send", "recv"):
                ends = (act.rank, act.peer)
                way = ("message", *(ends if act.name == "send" else ends[::-1]))
            elif act.name.startswith(TOGETHER):
                way = (act.name,)
            counts[way, act.name, act.rank] += 1
            parts.setdefault((way, counts[way, act.name, act.rank]), []).append(key)
        return {key: part for part in parts.values() for key in part}


def differences(target: Trace, yours: Trace) -> list[str]:
    """Say in words how `yours` is not `target`, or who waits for whom."""
    waits = [step.acts for step in yours.steps if not step.done]
    if lines := [act.waits for acts in waits for act in acts]:
        return lines
    lines = [f"missing: {act}" for act in (target.acts - yours.acts).elements()]
    lines += [f"not in the target: {act}" for act in (yours.acts - target.acts)]
    for rank, (right, row) in enumerate(zip(target.rows, yours.rows, strict=True)):
        if right != row:
            words = [", ".join(each) or "nothing" for each in (row, right)]
            lines.append(f"rank {rank} holds {words[0]}; the target is {words[1]}")
    if not lines:  # the same acts
        pairs = enumerate(zip(target.did, yours.did, strict=True))
        lines = [f"rank {rank} has another order" for rank, (a, b) in pairs if a != b]
    return lines


def beside(name: str, target: Trace, yours: Trace | None) -> Svg:
    """Draw the target and, if there is one, the reader's trace beside it.

    What is in one of them only has a dashed frame.
    """
    panels = [_Panel("target", target, yours or target, target)]
    panels += [_Panel("yours", yours, target, target)] if yours else []
    svg = Svg(name, ". ".join(panel.spoken for panel in panels))
    wide = sum(panel.width for panel in panels) + BETWEEN * (len(panels) - 1)
    fits = wide + 2 * MARGIN <= PAGE
    svg.width = 2 * MARGIN + (wide if fits else max(p.width for p in panels))
    x, y = float(MARGIN), 0.0
    for panel in panels:
        panel.draw(svg, x, y)
        x, y = (x + panel.width + BETWEEN, y) if fits else (x, y + panel.height)
    svg.height = panels[0].height * (1 if fits else len(panels))
    return svg


@dataclass
class _Panel:
    """One trace on the page; `other` is that of the other one, `target` what to reach.

    What another trace does not have is marked here, and missing cells are drawn empty.
    """

    head: str
    trace: Trace
    other: Trace
    target: Trace

    @cached_property
    def lanes(self) -> list[list[Step]]:
        """The steps, those in one lane that can be drawn below each other."""
        lanes: list[list[Step]] = []
        for step in self.trace.steps:
            for lane in lanes:
                taken = {row for each in lane for row in each.rows}
                if lane[0].turn == step.turn and taken.isdisjoint(step.rows):
                    lane.append(step)
                    break
            else:
                lanes.append([step])
        return lanes

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """What each rank holds, and empty cells for what it should."""
        pairs = list(zip(self.trace.rows, self.target.rows, strict=True))
        rows = [row + [""] * (len(right) - len(row)) for row, right in pairs]
        return [[Cell(text, (rank,)) for text in row] for rank, row in enumerate(rows)]

    @cached_property
    def widths(self) -> tuple[float, float]:
        """How wide the lanes are, and each cell."""
        lanes = sum(max(step.width for step in lane) + GAP for lane in self.lanes)
        return lanes + 10, cell_width(self.cells, SIZE) + GAP

    @property
    def width(self) -> float:
        """How wide it is."""
        lanes, cell = self.widths
        return CHIP + lanes + cell * max(map(len, self.cells))

    @property
    def top(self) -> float:
        """What is above the first row; the name of a common call has a line."""
        return 46 + 20 * any(len(step.acts) > 1 for step in self.trace.steps)

    @property
    def height(self) -> float:
        """How high it is."""
        return self.top + PITCH * (len(self.cells) - 1) + HIGH + MARGIN

    @property
    def spoken(self) -> str:
        """What it shows, in words."""
        acts = [str(act) for act in self.trace.acts.elements()]
        held = [f"rank {r} holds {', '.join(t)}" for r, t in enumerate(self.trace.rows)]
        return f"{self.head}: {'; '.join(acts + [h for h in held if h[-1] != ' '])}"

    def draw(self, svg: Svg, x: float, y: float) -> None:
        """Draw the rows, what is done in them, and what is held at the end."""
        svg.text(x, y + 22, self.head, 14, anchor="start", bold=True)
        rows = [y + self.top + PITCH * rank for rank in range(len(self.cells))]
        lanes, cell = self.widths
        for rank, top in enumerate(rows):
            svg.chip(x, top, CHIP, HIGH, rank)
            svg.line(
                x + CHIP, top + HIGH / 2, x + CHIP + lanes, top + HIGH / 2, **PALER
            )
            for j, held in enumerate(self.cells[rank]):
                left = x + CHIP + lanes + j * cell
                held.draw(svg, left, top, cell - GAP, HIGH)
                if self.target.rows[rank][j : j + 1] != [held.text]:
                    svg.box(left - 2, top - 2, cell - GAP + 4, HIGH + 4, **DIFFERS)
        left = x + CHIP + 8
        for lane in self.lanes:
            wide = max(step.width for step in lane)
            for step in lane:
                self._step(svg, left, wide, rows, step)
            left += wide + GAP

    def _differs(self, act: Act) -> bool:
        return self.trace.acts[act] > self.other.acts[act]

    def _step(
        self, svg: Svg, x: float, w: float, rows: list[float], step: Step
    ) -> None:
        """Draw a message as an arrow, a common call as a band, the rest as a box."""
        act = step.acts[0]
        if step.done and act.name == "send" and act.peer is not None:
            self._message(svg, x + w / 2, act, rows[act.rank], rows[act.peer])
            return
        if len(step.acts) > 1:
            svg.box(x, rows[0] - 6, w, rows[-1] - rows[0] + HIGH + 12, fill=PALE)
            svg.text(x + w / 2, rows[0] - 16, act.name, SIZE, fill=GREY)
        for act in step.acts:
            text = act.text if len(step.acts) > 1 else step.label
            fill = tint(rank_color(act.rank)) if step.done else WHITE
            box = x + 3, rows[act.rank], w - 6, HIGH
            if text:
                svg.box(*box, fill=fill, stroke=GREY, radius=3)
                svg.label(*box, text, SIZE)
            if not step.done or self._differs(act):
                svg.box(*box, **DIFFERS)

    def _message(self, svg: Svg, x: float, act: Act, top: float, end: float) -> None:
        """Draw an arrow from one row to another, and on it what is sent."""
        color, dash = rank_color(act.rank), None
        fill = tint(color)
        if self._differs(act):
            color, dash = WRONG, "3 3"
        svg.arrow(x, top + HIGH / 2, x, end + HIGH / 2, stroke=color, width=2)
        at = top + HIGH / 2 + math.copysign(PITCH * 0.45, end - top) - 8
        wide = text_width(act.text, SIZE) + 8
        box = x - wide / 2, at, wide, 16
        svg.box(*box, fill=fill, radius=3, stroke=color, dash=dash)
        svg.label(*box, act.text, SIZE)
