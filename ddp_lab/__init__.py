"""The programs of DDP Lab and, in `ddp_lab.kit`, what the notebooks run them with."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

ROOT = Path(__file__).resolve().parents[1]
"""The repository's root folder."""


def workplace(folder: Path) -> Path:
    """Return where a notebook in `folder` works: there are `notebooks` and `ddp_lab`.

    That is the root folder or, for a learner's copies, `work` below it.
    """
    for above in (folder, *folder.parents):
        if (above / "notebooks").is_dir() and (above / "ddp_lab").is_dir():
            return above
    return ROOT


def from_here(path: Path) -> str:
    """Write a path from the current folder if it lies there, else as it is."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Let `%load_ext ddp_lab` add %torchrun and %python, and go to the workplace."""
    from ddp_lab.kit.cell import magics

    magics.load(shell)
