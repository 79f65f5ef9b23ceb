"""Plots of what a run reported, in the rank colors of the figures."""

import io
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_lab.kit.draw.colors import RANK_COLORS, WHITE
from ddp_lab.kit.draw.svg import image
from ddp_lab.kit.draw.timeline import timeline, timelines
from ddp_lab.kit.draw.values import PAGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["RANK_COLORS", "Plot", "timeline", "timelines"]

SMALLEST = 12.5  # pixels of text: 9 points


@dataclass(frozen=True)
class Plot:
    """A plot that a notebook displays, white in any theme; `figure` is Matplotlib's."""

    title: str
    figure: "Figure"

    def _repr_html_(self) -> str:
        """Return an image with its title for those who cannot see it."""
        source = f"data:image/png;base64,{b64encode(self.png()).decode()}"
        return image(self.title, source, PAGE, SMALLEST)

    def png(self) -> bytes:
        """Return the plot as the bytes of a PNG file."""
        from PIL import Image

        page, small = io.BytesIO(), io.BytesIO()
        self.figure.savefig(page, format="png", dpi=150, facecolor=WHITE)
        # Few colors suffice, and a committed notebook should stay small.
        Image.open(page).convert("RGB").quantize(64).save(small, "png", optimize=True)
        return small.getvalue()

    def __repr__(self) -> str:
        """Name the plot where it cannot be shown."""
        return f"Plot: {self.title}"
