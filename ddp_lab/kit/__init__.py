"""What the notebooks and the tests use: launch, predict, break and draw.

`torchrun` and `python` run a program in processes of its own and return a `Run` (of the
package `whichrank`);
`variant` and `diff` change a program and compare two; `predict` keeps a guess,
`suspect` a diagnosis, and `score` counts what was right; `hint` and `solution` help
with an exercise. CONTRIBUTING.md has its rooms, and what each may import.

A name is looked up when it is asked for, so that one room does not import the others:
drawing needs no launcher, and what the fork server imports, every program inherits.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddp_lab.kit.cell.hints import hint, solution
    from ddp_lab.kit.cell.predict import predict, score, suspect
    from ddp_lab.kit.cell.variants import diff, variant
    from ddp_lab.kit.launch import WARM, python, torchrun, warm_python

# ruff: noqa: F401  (for those who check types)
PLACES = {
    "cell.hints": ("hint", "solution"),
    "cell.predict": ("predict", "score", "suspect"),
    "cell.variants": ("diff", "variant"),
    "launch": ("WARM", "python", "torchrun", "warm_python"),
}


def __getattr__(name: str) -> Any:
    for place, names in PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{place}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
