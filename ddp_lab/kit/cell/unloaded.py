"""What %torchrun says in a kernel that has not run the first cells of its notebook.

A kernel of the lab's environment loads this when it starts (see ipython_config.py);
`%load_ext ddp_lab` then puts the real magics in place of these.
"""

from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

ABOVE = "run the cells above first (JupyterLab: Run > Run All Above Selected Cell)"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in `shell`; nothing else changes."""
    magics: Any = shell.magics_manager
    magics.register_function(_refuse, "line", "torchrun")
    magics.register_function(_refuse, "line", "python")
    for name in ("program", "puzzle", "ranks"):
        magics.register_function(_refuse, "cell", name)


def _refuse(line: str, cell: str = "") -> None:
    raise UsageError(f"this kernel has not run `%load_ext ddp_lab`: {ABOVE}")
