"""What the notebooks and the tests use: launch, predict, break and draw.

`torchrun` and `python` run a program in processes of its own and return a `Run`;
`variant` and `diff` change a program and compare two; `predict` keeps a guess and
`suspect` a diagnosis; `figures` and `plots` draw; `data` finds CIFAR-10 or a stand-in.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository's root folder, which every notebook works in."""

from ddp_lab.kit.launch import Failure, Run, RunFailed, python, torchrun  # noqa: E402
from ddp_lab.kit.predict import predict, suspect  # noqa: E402
from ddp_lab.kit.variants import diff, variant  # noqa: E402

__all__ = [
    "ROOT",
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
