"""Plots of what a run reported, in the rank colours of the figures."""

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_lab.kit.draw.colours import (
    GREY,
    INK,
    PALE,
    RANK_COLOURS,
    RULE,
    WHITE,
    rank_colour,
    text_on,
    tint,
)
from ddp_lab.kit.draw.svg import image, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["RANK_COLOURS", "Plot", "timeline"]

Bar = Sequence
"""[label, start, end], both in seconds."""

# In pixels.
PAGE_WIDTH, ROW_HEIGHT = 720, 46  # a row for each rank
LEFT, RIGHT, TOP, BOTTOM = 92, 24, 48, 54  # margins
SMALLEST = 12.5  # text: 9 points


@dataclass(frozen=True)
class Plot:
    """A plot that a notebook displays, white in any theme; `figure` is Matplotlib's."""

    title: str
    figure: "Figure"

    def _repr_html_(self) -> str:
        """Return an image with its title for those who cannot see it."""
        source = f"data:image/png;base64,{b64encode(self.png()).decode()}"
        return image(self.title, source, PAGE_WIDTH, SMALLEST)

    def png(self) -> bytes:
        """Return the plot as the bytes of a PNG file."""
        from PIL import Image

        page, small = io.BytesIO(), io.BytesIO()
        self.figure.savefig(page, format="png", dpi=150, facecolor=WHITE)
        # Few colours suffice, and a committed notebook should stay small.
        Image.open(page).convert("RGB").quantize(64).save(small, "png", optimize=True)
        return small.getvalue()

    def __repr__(self) -> str:
        """Name the plot where it cannot be shown."""
        return f"Plot: {self.title}"


def timeline(rows: Sequence[Sequence[Bar]], title: str) -> Plot:
    """Draw what each rank did when: a bar for each thing, rank 0 on top.

    Time counts from the first start. A label is written into its bar where it fits.
    What starts with "wait" is hatched in grey, all else has its rank's colour.

    Args:
        rows: by rank, bars as [label, start, end], in seconds of a clock that the
            ranks share.
        title: what the plot shows.

    Returns:
        The plot, which a notebook displays as the last expression of a cell.

    Raises:
        ValueError: if there is no bar at all, or one ends before it starts.
    """
    bars = listed(rows)
    if not bars:
        raise ValueError(f"there is nothing to draw: {title}")
    first = min(start for _, _, start, _ in bars)
    last = max(end for *_, end in bars)
    figure, axes = empty_axes(len(rows), (last - first) or 1.0, title)
    for rank, label, start, end in bars:
        draw_bar(axes, rank, label, start - first, end - start)
    return Plot(title, figure)


def listed(rows: Sequence[Sequence[Bar]]) -> list[tuple[int, str, float, float]]:
    """List all bars as (rank, label, start, end); raise ValueError for a wrong one."""
    bars = [(rank, *bar) for rank, row in enumerate(rows) for bar in row]
    for rank, label, start, end in bars:
        if end < start:
            raise ValueError(f"rank {rank}: {label!r} ends at {end}, before {start}")
    return bars


def empty_axes(ranks: int, seconds: float, title: str) -> tuple["Figure", "Axes"]:
    """Return a figure whose axes have a row for each rank and an axis of seconds."""
    from matplotlib import style
    from matplotlib.figure import Figure

    height = TOP + ROW_HEIGHT * ranks + BOTTOM
    place = (
        LEFT / PAGE_WIDTH,
        BOTTOM / height,
        (PAGE_WIDTH - LEFT - RIGHT) / PAGE_WIDTH,
        ROW_HEIGHT * ranks / height,
    )
    with style.context("default"):  # whatever the reader's theme is
        figure = Figure(figsize=(PAGE_WIDTH / 100, height / 100), dpi=100)
        axes = figure.add_axes(place)
        words: dict[str, Any] = {
            "size": 12,
            "weight": "bold",
            "color": INK,
            "va": "center",
        }
        figure.text(16 / PAGE_WIDTH, 1 - 24 / height, title, **words)
        axes.set(xlim=(0, 1.02 * seconds), ylim=(ranks - 0.5, -0.5), yticks=[])
        axes.set_xlabel("seconds", color=GREY)
        axes.tick_params(axis="x", color=RULE, labelcolor=GREY)
        axes.grid(axis="x", color=RULE, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "left", "right"]].set_visible(False)
        axes.spines["bottom"].set_color(RULE)
        for rank in range(ranks):
            draw_name(axes, rank)
    return figure, axes


def draw_name(axes: "Axes", rank: int) -> None:
    """Write the name of a rank, in its colour, left of its row."""
    colour = rank_colour(rank)
    axes.annotate(
        f"rank {rank}",
        (0, rank),
        xytext=(-10, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        weight="bold",
        color=text_on(colour),
        bbox={"facecolor": colour, "edgecolor": "none", "boxstyle": "round,pad=0.5"},
    )


def draw_bar(axes: "Axes", rank: int, label: str, start: float, seconds: float) -> None:
    """Draw one bar into a rank's row, with its label if there is room for it."""
    waits, colour = label.startswith("wait"), rank_colour(rank)
    look: dict[str, Any]
    look = {"facecolor": tint(colour, 0.4), "edgecolor": colour}
    if waits:
        look = {"facecolor": PALE, "edgecolor": RULE, "hatch": "///"}
    axes.barh(rank, seconds, left=start, height=0.66, **look)
    pixels = seconds / axes.get_xlim()[1] * (PAGE_WIDTH - LEFT - RIGHT)
    if text_width(label, 12.5) + 6 <= pixels:
        plate = {"facecolor": WHITE, "edgecolor": "none", "pad": 2} if waits else None
        words: dict[str, Any] = {
            "ha": "center",
            "va": "center",
            "size": 9,
            "bbox": plate,
        }
        axes.text(
            start + seconds / 2, rank, label, color=GREY if waits else INK, **words
        )
