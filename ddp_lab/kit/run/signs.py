"""What a run writes, and which of it is a sign of life."""

import os
import re
from contextlib import suppress
from pathlib import Path

# Beside the ranks' output; the end of a rank is a sign of life, too.
SIGNS = ("out", "err", "end.json", "exit.json")
# Whoever finds nobody at the other end tries again, for half an hour, and says so.
TRIES = re.compile(rb"\s*(\[[WE]\d+ .*\[c10d\] |Exception raised from |frame #)")
FIRST = 1000  # bytes of what is new that tell


class Signs:
    """Counts the bytes that a run writes into its folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sizes: dict[str, int] = {}
        """Of each file that may say that somebody tries again."""
        self.idle = 0
        """How many bytes have only said so."""

    def count(self) -> tuple[int, int]:
        """Return all bytes so far, and those that are a sign of life.

        A rank may remove them.
        """
        found = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                if name.endswith(".log") or name in SIGNS:
                    with suppress(OSError):
                        found += self._size(os.path.join(folder, name))
        return found, found - self.idle

    def _size(self, path: str) -> int:
        size = os.stat(path).st_size
        if path.endswith(("stderr.log", "/err")):
            old = self.sizes.get(path, 0)
            if size > old and TRIES.match(_read(path, old)):
                self.idle += size - old
            self.sizes[path] = size
        return size


def _read(path: str, start: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(FIRST)
