"""Figures of the lesson on what communication costs: lines, pieces and late ranks."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import log10
from typing import Any

from ddp_lab.kit.draw.colors import (
    GREY,
    INK,
    RULE,
    rank_color,
    text_on,
    tint,
)
from ddp_lab.kit.draw.svg import number
from figs.gallery import figure
from figs.page import Page, page

DARK = "#0072B2"  # of the longest time
PANEL, TALL = 196, 130  # of one call's plot
Points = Mapping[str, Any]
"""`low`, `median` and `high`, in seconds by size; `alpha` and `beta`, each a number."""


@figure
def cost_line() -> Page:
    """Draw α + β · bytes on logarithmic axes, with its two regimes."""
    svg = page(
        "time = α + β · bytes, on logarithmic axes",
        "Left of α/β all messages cost the same; right of it, each byte counts.",
        "Time of a message against its size, both axes logarithmic. For small messages "
        "the line is flat at α, whatever their size. For large ones it rises as "
        "β times bytes. Both parts meet at the size α/β, where the time is 2 α.",
        330,
    )
    left, right, top, bottom = 110, 680, 84, 280
    svg.line(left, bottom, right, bottom, stroke=RULE)
    svg.line(left, bottom, left, top, stroke=RULE)
    middle, level = 395.0, 236.0

    def at(x: float) -> float:
        """The height at x, with one decade in 95 pixels, and 48 pixels upwards."""
        return level - 48 * log10(1 + 10 ** ((x - middle) / 95))

    d = "M" + "L".join(f"{x} {at(x):.1f}" for x in range(left, right + 1, 6))
    svg.line(left, level, right, level, stroke=GREY, dash="6 4")
    svg.line(middle - 70, level + 35.4, right, level - 144, stroke=GREY, dash="6 4")
    svg.path(d, stroke=DARK, width=3)
    svg.line(middle, bottom, middle, at(middle), stroke=GREY, dash="2 4")
    svg.text(left - 12, level, "α", 16, anchor="end")
    svg.text(middle, bottom + 16, "α/β", 14)
    svg.text((left + middle) / 2, level - 22, "latency: α counts", 14)
    svg.text(470, 130, "bandwidth: β · bytes counts", 14)
    svg.text(right, bottom + 16, "bytes", 13, fill=GREY, anchor="end")
    svg.text(left - 12, top + 6, "time", 13, fill=GREY, anchor="end")
    svg.text(
        40,
        314,
        "Twice the bytes: the same time on the left, twice the time on the right.",
        13,
        fill=GREY,
        anchor="start",
    )
    return svg


def call_lines(sizes: Sequence[int], calls: Mapping[str, Points]) -> Page:
    """Draw each call's times by size, with their noise and the line fitted to them.

    Args:
        sizes: in bytes.
        calls: by name, `low`, `median` and `high` by size, `alpha` and `beta`.
    """
    told = "; ".join(
        f"{name}: {1e6 * call['alpha']:.0f} µs and {1e9 * call['beta']:.2f} ns a byte"
        for name, call in calls.items()
    )
    rows = -(-len(calls) // 3)
    svg = page(
        "seconds by size, and the line through them",
        "A bar spans the rounds but the quickest and the slowest; a dot is the median.",
        f"Time of each call at {len(sizes)} sizes, with the fitted line. {told}.",
        80 + (TALL + 70) * rows,
    )
    times = [
        t for call in calls.values() for kind in ("low", "high") for t in call[kind]
    ]
    low, high = log10(min(times)), log10(max(times)) + 0.05

    for place, (name, call) in enumerate(calls.items()):
        left, top = 84 + (PANEL + 18) * (place % 3), 100 + (TALL + 70) * (place // 3)

        def at(
            size: float, seconds: float, left: float = left, top: float = top
        ) -> tuple[float, float]:
            span = log10(sizes[-1] / sizes[0])
            x = left + PANEL * log10(size / sizes[0]) / span
            share = (log10(seconds) - low) / (high - low)
            return x, top + TALL * (1 - min(1.0, max(0.0, share)))

        _draw_axes(svg, left, top, low, high, sizes, first=place % 3 == 0)
        svg.text(left, top - 14, name, 13, anchor="start", bold=True)
        for i, size in enumerate(sizes):
            (x, y1), (_, y2) = at(size, call["low"][i]), at(size, call["high"][i])
            svg.line(x, y1, x, y2, stroke=RULE, width=3)
        line = (at(s, max(call["alpha"] + call["beta"] * s, 1e-9)) for s in sizes)
        svg.path(
            "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line), stroke=DARK, width=2
        )
        for i, size in enumerate(sizes):
            x, y = at(size, call["median"][i])
            svg.add("circle", cx=x, cy=y, r=2.5, fill=INK)
    return svg


def _draw_axes(
    svg: Page,
    left: float,
    top: float,
    low: float,
    high: float,
    sizes: Sequence[int],
    *,
    first: bool,
) -> None:
    """Draw a frame, powers of ten on its left, the first and last size below."""
    svg.box(left, top, PANEL, TALL, stroke=RULE, radius=0)
    for power in range(-6, 3):
        if low <= power <= high:
            y = top + TALL * (1 - (power - low) / (high - low))
            svg.line(left, y, left + PANEL, y, stroke=RULE, width=0.5)
            if first:
                name = f"{10**power:g} s" if power >= 0 else f"{10 ** (power + 3):g} ms"
                svg.text(left - 8, y, name, 12, fill=GREY, anchor="end")
    svg.text(left, top + TALL + 14, _bytes(sizes[0]), 12, fill=GREY, anchor="start")
    svg.text(
        left + PANEL, top + TALL + 14, _bytes(sizes[-1]), 12, fill=GREY, anchor="end"
    )


def _bytes(size: float) -> str:
    return f"{size / 2**20:.0f} MB" if size >= 2**20 else f"{size / 2**10:.0f} KB"


Holds = Sequence[Sequence[Sequence[int]]]
"""By rank and step, the pieces: bit r is set where rank r's number is in the sum."""


def pieces_by_step(ways: Mapping[str, Holds]) -> Page:
    """Draw who holds which sum of which piece after each step, a row for each way."""
    ranks = len(next(iter(ways.values())))
    row = 18 * ranks + 46
    told = "; ".join(f"{name}: {_told(holds)}" for name, holds in ways.items())
    svg = page(
        "who holds which piece, after each step",
        "Rows are ranks, boxes pieces; the colors say whose numbers a piece sums.",
        f"The pieces of each rank before the first step and after each one. {told}.",
        84 + row * len(ways),
    )
    for place, (name, holds) in enumerate(ways.items()):
        top = 96 + row * place
        svg.text(
            24,
            top - 16,
            f"{name}: {len(holds[0]) - 1} steps",
            13,
            anchor="start",
            bold=True,
        )
        wide = min(112.0, 676 / len(holds[0]))
        fills: dict[int, str] = dict.fromkeys(range(ranks), "")
        frames = ""
        for step, rank in product(range(len(holds[0])), range(ranks)):
            x, y = 24 + wide * step, top + 18 * rank
            each = (wide - 14) / len(holds[rank][step])
            for piece, sums in enumerate(holds[rank][step]):
                here = [r for r in range(ranks) if sums >> r & 1]
                stripe = (each - 2) / max(1, len(here))
                for i, r in enumerate(here):
                    fills[r] += _rectangle(x + each * piece + stripe * i, y, stripe)
                if len(here) == ranks:
                    frames += _rectangle(x + each * piece, y, each - 2)
        for rank, d in fills.items():
            svg.add("path", d=d or "M0 0", fill=rank_color(rank))
        svg.path(frames or "M0 0")
    return svg


def _rectangle(x: float, y: float, wide: float) -> str:
    """Return a rectangle as a piece of a path: a box for each would be a long text."""
    return f"M{number(x)} {number(y)}h{number(wide)}v14h{number(-wide)}z"


def _told(holds: Holds) -> str:
    """Say how many pieces are complete, on all ranks, after each step."""
    full = 2 ** len(holds) - 1
    complete = (
        sum(sums == full for rank in holds for sums in rank[step])
        for step in range(len(holds[0]))
    )
    return "complete " + ", ".join(map(str, complete))


def heat(maps: Mapping[str, Sequence[Sequence[float]]]) -> Page:
    """Draw a map for each name: by rank and step, milliseconds; darker is longer."""
    told = "; ".join(
        f"{name}: "
        + ", ".join(
            f"rank {r} {min(row):.0f} to {max(row):.0f}" for r, row in enumerate(rows)
        )
        for name, rows in maps.items()
    )
    ranks, steps = (len(next(iter(maps.values()))), len(next(iter(maps.values()))[0]))
    svg = page(
        "milliseconds by rank and step",
        "Both maps show the same steps; the darkest cell of a map is its longest time.",
        f"Milliseconds of each rank in {steps} steps. {told}.",
        110 + 34 * ranks,
    )
    wide = (640 - 74 - 24) / len(maps) / steps
    for place, (name, rows) in enumerate(maps.items()):
        left, most = 118 + (wide * steps + 24) * place, max(map(max, rows))
        svg.text(left, 84, name, 13, anchor="start", bold=True)
        for rank, row in enumerate(rows):
            y = 98 + 34 * rank
            if place == 0:
                svg.chip(40, y, 62, 28, rank)
            for step, milliseconds in enumerate(row):
                fill = tint(DARK, milliseconds / most)
                x = left + wide * step
                svg.box(x, y, wide - 3, 28, fill=fill, stroke="none", radius=2)
                svg.label(
                    x, y, wide - 3, 28, f"{milliseconds:.0f}", 12, fill=text_on(fill)
                )
    return svg
