"""What %torchrun says in a kernel that has not run the first cells of its notebook.

A kernel of the lab's environment loads this when it starts (see ipython_config.py);
`%load_ext ddp_lab` then puts the real magics in place of these.
"""

from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

ABOVE = "run the cells above first (JupyterLab: Run > Run All Above Selected Cell)"

MAGICS = {"line": "torchrun python examine", "cell": "program variant puzzle ranks"}
"""By kind, in the order of the functions of magics.py."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in `shell`; nothing else changes."""
    magics: Any = shell.magics_manager
    for kind, names in MAGICS.items():
        for name in names.split():
            magics.register_function(_refuse, kind, name)


def _refuse(line: str, cell: str = "") -> None:
    raise UsageError(f"this kernel has not run `%load_ext ddp_lab`: {ABOVE}")
