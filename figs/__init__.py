"""The lessons' figures: the SVG files here, and the code that draws them.

`FIGURES` names them all; `python -m figs` writes them anew.
"""

from ddp_lab.kit.draw.svg import FIGURES
from figs import checkpoints, collectives, processes, splits, training  # noqa: F401

__all__ = ["FIGURES"]
