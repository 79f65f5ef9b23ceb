"""How the processes of a run start: cold, as a terminal does, or warm (warm.py)."""

import shlex
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

PROXY = Path(__file__).with_name("proxy.py")

Tell = Callable[[str], None]
"""Called with what a run is doing before its program starts."""


class Starter(Protocol):
    """How the processes of a run are started."""

    def unfit(self, program: str) -> str:
        """Return why a program has to start cold instead; "" if it need not."""

    def python(self, env: dict[str, str], tell: Tell | None = None) -> str | None:
        """Return what to run instead of `sys.executable`; None for a plain start."""

    def new_trouble(self) -> str:
        """Return why there is none although there should be; each reason once."""

    def ended_by(self, python: str) -> str:
        """Return who has ended what is behind `python`: "" if it still serves."""


class Cold:
    """A start as in a terminal: every process imports what it needs anew."""

    def unfit(self, program: str) -> str:
        """Start any program."""
        return ""

    def python(self, env: dict[str, str], tell: Tell | None = None) -> None:
        """Run Python itself."""

    def new_trouble(self) -> str:
        """Have none."""
        return ""

    def ended_by(self, python: str) -> str:
        """Have nothing behind it."""
        return ""


COLD = Cold()


def plain() -> str:
    """Return the Python of a plain start: ours or, without torch, that of the shell.

    With -S we do not see what ours has installed.
    """
    ours = sys.flags.no_site or find_spec("torch")
    return (None if ours else shutil.which("python")) or sys.executable


def write_python(folder: Path, socket: str) -> str:
    """Write a command for $PYTHON_EXEC to `folder`; return its path (see proxy.py)."""
    words = [plain(), "-IS", str(PROXY), socket]
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return str(script)
