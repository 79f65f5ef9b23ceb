"""A folder that is removed at the end of its owner, by the next owner if need be."""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "ddp_lab-run-"
YOUNG = 60.0  # seconds in which a folder may not have its lock yet


class Owned:
    """A folder for the files of a run, which is ours as long as this process lives.

    Its lock goes with us, whatever ends us. The guard removes the files of a caller
    that is killed; if it is gone as well, the next launch of anybody does so.

    Args:
        home: where to make it; where temporary files are, if it is not given.
    """

    def __init__(self, home: Path | None = None) -> None:
        home = home or Path(tempfile.gettempdir())
        sweep(home)
        home.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder and all that is in it, if it is there."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def sweep(home: Path, young: float = YOUNG) -> None:
    """Remove the folders of owners who have gone; somebody else's we cannot."""
    for path in home.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if path.stat().st_mtime > time.time() - young:
                continue
            folder = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(folder)
