"""What a run writes, which of it is a sign of life, and for how long nothing moves."""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ddp_lab.kit.record import names
from ddp_lab.kit.run.probe import Progress

# Beside the ranks' output; the end of a rank is a sign of life, too.
SIGNS = (names.OUT, names.ERR, names.END, names.EXIT)
# Whoever finds nobody at the other end tries again, for half an hour, and says so.
TRIES = re.compile(rb"\s*(\[[WE]\d+ .*\[c10d\] |Exception raised from |frame #)")
FIRST = 1000  # bytes of what is new that tell
IDLE = 0.01  # of a core: what a rank may use that waits, and looks now and then


class Signs:
    """Counts the bytes that a run writes into its folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sizes: dict[str, int] = {}
        """Of each file that may say that somebody tries again."""
        self.idle = 0
        """How many bytes have only said so."""
        self.written = self.said = self.begun = 0
        """All bytes; those that are a sign of life; and those by which ranks begin."""

    def count(self) -> bool:
        """Count the bytes; return whether there are others than before.

        A rank may remove them.
        """
        before = self.said, self.begun
        self.written = self.begun = 0
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.join(folder, name)
                with suppress(OSError):
                    if name == names.PID:
                        self.begun += os.stat(path).st_size
                    elif name.endswith(".log") or name in SIGNS:
                        self.written += self._size(path)
        self.said = self.written - self.idle
        return (self.said, self.begun) != before

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


class Still:
    """For how long nothing has moved: two looks tell, half of a limit apart."""

    def __init__(self, look: Callable[[], Progress]):
        self.look = look
        self.began = self.since = time.monotonic()
        self.before: Progress | None = None

    @property
    def seconds(self) -> float:
        """How long it is since it began, or last moved."""
        return time.monotonic() - self.since

    def over(self, limit: float, busy: bool, first: float = 0.0) -> bool:
        """Tell whether nothing has moved for `limit` seconds.

        Args:
            limit: the seconds.
            busy: whether a rank that computes moves; else only one that communicates.
            first: the seconds that a program has to import what it needs, and to join.
        """
        if self.before is None and self.seconds > limit / 2:
            self.before = self.look()
        if self.before is None or self.seconds <= limit:
            return False
        now, before = self.look(), self.before
        idle = False  # of machines that do not answer nothing is known
        if now.used is not None and before.used is not None:
            idle = now.used - before.used < IDLE * limit / 2
        starting = now.starting or (now.joining and not idle)  # a device gets ready
        starting = starting and time.monotonic() - self.began < first
        if now.done == before.done and not starting and (idle or not busy):
            return True
        self.since, self.before = time.monotonic(), None
        return False
