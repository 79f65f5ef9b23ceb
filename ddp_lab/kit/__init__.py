"""What the notebooks and the tests use: launch, predict, break and draw.

`torchrun` and `python` run a program in processes of its own and return a `Run`;
`variant` and `diff` change a program and compare two; `predict` keeps a guess and
`suspect` a diagnosis. Four rooms: `run`, `explain`, `cell`, `draw`.
"""

from ddp_lab.kit.cell.predict import predict, suspect
from ddp_lab.kit.cell.variants import diff, variant
from ddp_lab.kit.explain.failure import Failure
from ddp_lab.kit.run.launch import Run, RunFailed, python, torchrun

__all__ = [
    "Failure",
    "Run",
    "RunFailed",
    "diff",
    "predict",
    "python",
    "suspect",
    "torchrun",
    "variant",
]
