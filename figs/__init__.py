"""The lessons' figures: the SVG files here, and the code that draws them.

`FIGURES` names them all; `python -m figs` writes them anew.
"""

from figs import checkpoints, collectives, processes, splits, training  # noqa: F401
from figs.gallery import FIGURES

__all__ = ["FIGURES"]
