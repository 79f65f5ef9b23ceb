"""Every picture that the lab draws: the lessons' figures and those of a run's values.

`before_after` draws what the ranks held and hold, and `standstill` where they hang;
`FIGURES` names the static figures, which `python -m ddp_lab.kit.figures` writes.
"""

from ddp_lab.kit.figures import (  # noqa: F401  (they enter FIGURES)
    checkpoints,
    collectives,
    processes,
    splits,
    training,
)
from ddp_lab.kit.figures.colours import RANK_COLOURS
from ddp_lab.kit.figures.standstill import standstill
from ddp_lab.kit.figures.svg import FIGURES, Svg
from ddp_lab.kit.figures.values import before_after

__all__ = ["FIGURES", "RANK_COLOURS", "Svg", "before_after", "standstill"]
