"""The programs of DDP Lab and, in `ddp_lab.kit`, what the notebooks run them with."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

ROOT = Path(__file__).resolve().parents[1]
"""The repository's root folder, which every notebook works in."""


def from_root(path: Path) -> str:
    """Write a path from the root folder if it lies there, else as it is."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Let `%load_ext ddp_lab` add %torchrun and %python, and go to the root folder."""
    from ddp_lab.kit.cell import magics

    magics.load(shell)
