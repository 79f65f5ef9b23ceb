"""What a judge needs for a while has its name; what a killed one leaves is swept by it.

The name is that of the process and of its start, since numbers are given away again.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from classroom.engine import watchdog

PREFIX = "classroom-"


def name() -> str:
    """Return how all names begin of what this judge makes."""
    return f"{PREFIX}{os.getpid()}-{started(os.getpid())}-"


def of_the_killed(place: Path) -> Iterator[Path]:
    """Yield what is in `place` of judges that have ended."""
    for left in place.glob(f"{PREFIX}*-*-*"):
        _, pid, start, _ = left.name.split("-", 3)
        if pid.isdigit() and not _lives(pid, start):
            yield left


def _lives(pid: str, start: str) -> bool:
    """Tell whether a process that was started then is still there, or may be.

    Who has no file left to open cannot ask the kernel, and must not take it for dead.
    """
    told = started(pid)
    return told == start if told else os.path.exists(f"/proc/{pid}")


def started(pid: int | str) -> str:
    """Return when a process was started, in the kernel's ticks; "" if it is gone."""
    stat = watchdog.stat_of(pid)
    return stat[19] if stat else ""


def folder() -> Path:
    """Make a folder, which is to be removed in the end."""
    return Path(tempfile.mkdtemp(prefix=name()))


def sweep() -> None:
    """Remove the folders of judges that were killed."""
    for left in of_the_killed(Path(tempfile.gettempdir())):
        shutil.rmtree(left, ignore_errors=True)
