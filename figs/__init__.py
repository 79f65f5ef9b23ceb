"""The lessons' figures: the SVG files here, and the code that draws them.

`FIGURES` names them all, `STEPPERS` what is drawn step by step; `python -m figs`
redraws them.
"""

from figs import (  # noqa: F401
    checkpoints,
    collectives,
    costs,
    elastic,
    hangs,
    less,
    long,
    meshes,
    nodes,
    pages,
    pipelines,
    processes,
    profiles,
    remote,
    rewards,
    roads,
    scale,
    schedules,
    servers,
    sharding,
    shards,
    splits,
    training,
    transformer,
    tunes,
    walks,
)
from figs.gallery import FIGURES, STEPPERS

__all__ = ["FIGURES", "STEPPERS"]
