"""The lessons' figures: the SVG files here, and the code that draws them.

`FIGURES` names them all; `python -m figs` redraws them.
"""

from figs import (  # noqa: F401
    checkpoints,
    collectives,
    elastic,
    hangs,
    meshes,
    nodes,
    pages,
    pipelines,
    processes,
    remote,
    roads,
    servers,
    sharding,
    shards,
    splits,
    training,
    transformer,
)
from figs.gallery import FIGURES

__all__ = ["FIGURES"]
