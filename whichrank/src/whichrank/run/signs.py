"""What a run writes, and which of it is a sign of life."""

import os
from contextlib import suppress
from pathlib import Path

from whichrank.record import names
from whichrank.record.torch_words import TRIES

# Beside the ranks' output; the end of a rank is a sign of life, too.
SIGNS = (names.OUT, names.ERR, names.END, names.EXIT)
FIRST = 1000  # bytes of what is new that tell


class Signs:
    """Counts the bytes that a run writes into its folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sizes: dict[str, int] = {}
        """Of each file in which torch may say that it tries to connect again."""
        self.idle = 0
        """How many bytes have said only that."""
        self.written = 0
        """All bytes that it has printed."""

    def count(self) -> int:
        """Count the bytes; return how many are a sign of life. A rank may remove some.

        A rank that begins, or ends, says so in a file.
        """
        self.written = begun = 0
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.join(folder, name)
                with suppress(OSError):
                    if name == names.PID:
                        begun += os.stat(path).st_size
                    elif name.endswith(".log") or name in SIGNS:
                        self.written += self._size(path)
        return self.written - self.idle + begun

    def _size(self, path: str) -> int:
        size = os.stat(path).st_size
        if path.endswith((names.STDERR, f"/{names.ERR}")):
            old = self.sizes.get(path, 0)
            if size > old and TRIES.match(_read(path, old)):
                self.idle += size - old
            self.sizes[path] = size
        return size


def _read(path: str, start: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(FIRST)
