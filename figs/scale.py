"""Pictures of a mesh with three dimensions, and of what a layout costs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_lab.kit.draw.colors import GREY, INK, PALE, RANK_COLORS, RULE, tint
from figs.gallery import figure
from figs.page import Page, page

if TYPE_CHECKING:
    from ddp_lab.scale.road import Cut, Training

NAMES = ("pipeline", "data", "tensor")
"""The dimensions of the lesson's mesh; the last one runs fastest."""
PENS: dict[str, dict] = {
    "tensor": {"width": 5},
    "data": {"width": 2},
    "pipeline": {"width": 2, "dash": "6 5"},
}
CHIP, LEFT, RIGHT = (92, 30), 40, 680
WHYS = {
    "computing": tint(RANK_COLORS[0], 0.75),
    "recomputing": tint(RANK_COLORS[0], 0.4),
    "bubble": PALE,
    "tensor sums": tint(RANK_COLORS[1], 0.75),
    "gathering": tint(RANK_COLORS[2], 0.75),
    "gradients": tint(RANK_COLORS[2], 0.4),
    "passing on": tint(RANK_COLORS[3], 0.75),
}
"""What a step's time goes into, and the color that it is drawn in."""


@figure
def three_cuts() -> Page:
    """Draw the mesh of eight ranks before any run."""
    return draw_mesh(
        "eight ranks, three dimensions",
        "Each rank has a neighbor along each dimension.",
        (2, 2, 2),
        {},
    )


def three_groups(facts: Sequence[Mapping]) -> Page:
    """Draw the mesh of a run of three_d.py, and what a rank sends along its lines.

    Args:
        facts: what each rank told.
    """
    shape = [1 + max(fact["at"][i] for fact in facts) for i in range(3)]
    notes = {}
    for along in NAMES:
        size = max(fact["sent"].get(along, 0) for fact in facts)
        nodes = max(fact["across"][along] for fact in facts)
        where = "inside a node" if nodes == 1 else f"over {nodes} nodes"
        notes[along] = f"{where}, a rank sends {size:,} bytes in a step"
    return draw_mesh(
        "one mesh, three groups for each rank",
        "As the run told it: who shares a line, on how many nodes, and what it sends.",
        shape,
        notes,
    )


def draw_mesh(
    title: str, note: str, shape: Sequence[int], notes: Mapping[str, str]
) -> Page:
    """Draw ranks as corners of a box, and the lines of each dimension."""
    ranks = {c: i for i, c in enumerate(product(*map(range, shape)))}
    lines: dict[str, list] = {along: [] for along in NAMES}
    for c in ranks:
        for i, along in enumerate(NAMES):
            other = (*c[:i], c[i] + 1, *c[i + 1 :])
            lines[along] += [(c, other)] if other in ranks else []
    pairs = {
        along: ", ".join(f"{ranks[a]} and {ranks[b]}" for a, b in each) or "none"
        for along, each in lines.items()
    }
    also = {along: f"; {notes[along]}" if along in notes else "" for along in NAMES}
    told = " ".join(
        f"{along}: {pairs[along]}{also[along]}." for along in reversed(NAMES)
    )
    svg = page(title, note, f"Ranks as corners of a box; lines join them. {told}", 404)
    for along, each in lines.items():
        for a, b in each:
            (x1, y1), (x2, y2) = middle(a, shape), middle(b, shape)
            svg.line(x1, y1, x2, y2, stroke=INK, **PENS[along])
    for c, rank in ranks.items():
        x, y = middle(c, shape)
        svg.chip(x - CHIP[0] / 2, y - CHIP[1] / 2, *CHIP, rank)
    for i, along in enumerate(reversed(NAMES)):
        y = 332 + 24 * i
        svg.line(LEFT, y, LEFT + 60, y, stroke=INK, **PENS[along])
        note = f"{along}: {notes[along]}" if along in notes else along
        svg.text(LEFT + 74, y, note, 13, fill=GREY, anchor="start")
    return svg


def middle(c: Sequence[int], shape: Sequence[int]) -> tuple[float, float]:
    """Return where a rank is drawn: tensor to the right, data down, pipeline back."""
    p, d, t = (x / max(1, n - 1) for x, n in zip(c, shape, strict=True))
    return 100 + 190 * t + 320 * p, 180 + 100 * d - 50 * p


@dataclass(repr=False)
class Playable(Page):
    """A drawing that becomes a form with sliders where a page may run its script.

    Where it may not, in a notebook that is not trusted yet, it stays a picture.
    """

    start: str = ""
    """Where the sliders stand first, in JSON."""

    def _repr_html_(self) -> str:
        """Return the picture, and the script that puts the form in its place."""
        script, style = (
            Path(__file__).with_name(f"planner.{kind}").read_text(encoding="utf-8")
            for kind in ("js", "css")
        )
        return f"""<div>{super()._repr_html_()}</div>
<script>(() => {{
{script}
const box = document.currentScript.previousElementSibling;
put(box.parentElement, "style", {{}}, {json.dumps(style)});
planner(box, {self.start});
}})();</script>"""


def planned(t: "Training", c: "Cut") -> Playable:
    """Draw what the planner says of a layout: its lines, its memory and its time.

    Args:
        t: the model, its batch and the devices.
        c: the layout.

    Returns:
        The drawing, which a notebook displays as the last expression of a cell, with
        sliders to go on from there.
    """
    # Not above: it imports torch, which the book does without.
    from ddp_lab.scale.road import GB, ROOM, memory, name, seconds

    model, gathered, activations = memory(t, c)
    half = memory(replace(t, states=0), c)[0] / 2  # weights weigh what gradients do
    kinds = {"weights": half, "gradients": half, "optimizer": model - 2 * half}
    kinds |= {"gathered": gathered, "activations": activations}
    shades = {kind: tint(RANK_COLORS[i], 0.75) for i, kind in enumerate(kinds)}
    kinds = {kind: size for kind, size in kinds.items() if size > 0}
    spent = {why: time for why, time in seconds(t, c).items() if time > 0}
    full, whole = sum(kinds.values()) / t.memory, sum(spent.values())
    fits = "fits" if full <= ROOM else "does not fit"
    bytes_told = ", ".join(f"{kind} {size / GB:.1f} GB" for kind, size in kinds.items())
    times_told = ", ".join(f"{why} {time / whole:.0%}" for why, time in spent.items())
    svg = page(
        name(c),
        f"{whole:.3g} s a step; memory {full:.0%} full: {fits}.",
        f"A layout on {t.devices} devices. {groups_told(t, c)} Memory: {bytes_told}. "
        f"Time: {times_told}.",
        414,
    )
    for i, line in enumerate(groups_told(t, c).split("; ")):
        svg.text(LEFT, 92 + 22 * i, line.rstrip("."), 14, anchor="start")
    scale = max(1.0, full) * t.memory
    most = f"memory, of {t.memory / GB:.0f} GB; a layout may use up to the dashed line"
    told = [f"{size / GB:.1f} GB" for size in kinds.values()]
    bar(svg, 176, most, kinds, shades, scale, told)
    x = LEFT + (RIGHT - LEFT) * t.memory * ROOM / scale
    svg.line(x, 186, x, 226, stroke=INK, width=2, dash="4 3")
    told = [f"{time / whole:.0%}" for time in spent.values()]
    bar(svg, 294, "seconds of a step", spent, WHYS, whole, told)
    start = json.dumps({"t": vars(t), "c": c._asdict()})
    return Playable(**vars(svg), start=start)


def groups_told(t: "Training", c: "Cut") -> str:
    """Say of each dimension which ranks are in a line, and where they sit."""
    stride, told = 1, []
    for along, size in (
        ("tensor", c.tensor),
        ("data", c.data),
        ("pipeline", c.pipeline),
    ):
        nodes = max(1, -(-size * stride // t.machine)) if stride < t.machine else size
        where = "in one machine" if nodes == 1 else f"over {nodes} machines"
        told.append(f"{along} {size}: {ordinal(stride)}, {where}")
        stride *= size
    return "; ".join(told) + "."


def ordinal(n: int) -> str:
    """Say how far apart the ranks of a line are."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    end = "th" if n % 100 in (11, 12, 13) else ends.get(n % 10, "th")
    return "neighbors" if n == 1 else f"every {n}{end} rank"


def bar(
    svg: Page,
    y: float,
    title: str,
    parts: Mapping[str, float],
    shades: Mapping[str, str],
    scale: float,
    told: Sequence[str],
) -> None:
    """Draw parts of a whole beside each other, and below them what is what."""
    svg.text(LEFT, y, title, 13, fill=GREY, anchor="start", bold=True)
    x, place = float(LEFT), 0
    svg.box(LEFT, y + 14, RIGHT - LEFT, 32, stroke=RULE, radius=0)
    for (part, size), said in zip(parts.items(), told, strict=True):
        width = (RIGHT - LEFT) * size / scale
        shade = shades.get(part, PALE)
        if width >= 0.5:
            svg.box(x, y + 14, width, 32, fill=shade, stroke=GREY, radius=0)
        x += width
        column, row = place % 4, place // 4
        svg.box(LEFT + 160 * column, y + 56 + 22 * row, 12, 12, fill=shade, radius=2)
        svg.text(
            LEFT + 18 + 160 * column,
            y + 62 + 22 * row,
            f"{part} {said}",
            12,
            anchor="start",
        )
        place += 1
