"""Follow what a run prints while it goes on: nothing is read twice, or kept.

`whichrank` shows all of it (terminal/follow.py), a cell the last lines (`Latest`).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from whichrank.record import names
from whichrank.record.files import clean
from whichrank.record.logs import folders_by_attempt, of_program
from whichrank.record.rank_files import RankFiles
from whichrank.record.rank_log import RankLog

BLOCK = 1 << 20  # bytes that are read at once
LAST_LINES = 100  # lines of a rank


class Stream:
    """A file that grows, followed to its end: what a rank prints, or a command.

    It is followed even if the rank removes it; what it empties begins anew.

    Args:
        path: the file.
        rank: whose it is; None for a command's.
        attempt: which one of the rank's, counted from 0.
    """

    def __init__(self, path: Path, rank: int | None, attempt: int = 0):
        self.rank, self.attempt = rank, attempt
        self.is_error = path.name in (names.STDERR, names.ERR)
        self.rest = b""
        """Of the last line what has come of it; of a progress bar its last state."""
        self.has_bar = False
        """Whether that is a progress bar, which draws over itself."""
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115  (as long as we follow)

    def blocks(self, most: int | None = None) -> Iterator[list[bytes]]:
        """Yield the lines that have been completed since the last time.

        Args:
            most: of how many bytes, if there are more; None for all.
        """
        size, at = os.fstat(self._file.fileno()).st_size, self._file.tell()
        start = max(0 if size < at else at, size - (most or size))
        skips = start > at
        if start != at:
            self._file.seek(start)
            self.rest = b""
        for begin in range(start, size, BLOCK):
            data = self.rest + self._file.read(min(BLOCK, size - begin))
            # Where a rank has emptied its file, there is a gap of zeros.
            *lines, rest = data.replace(b"\0", b"").split(b"\n")
            self.has_bar = b"\r" in rest[:-1]
            self.rest = rest[rest.rfind(b"\r", 0, -1) + 1 :][-(most or len(rest)) :]
            if b"\r" in data:
                lines = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
            yield lines[skips:]  # the first one may be half of one
            skips = False

    def close(self) -> None:
        """Stop following."""
        self._file.close()


class Tail:
    """All files to which a run prints.

    Args:
        folder: the run's.
        by_rank: whether each rank has files of its own, as below torchrun.
    """

    def __init__(self, folder: Path, by_rank: bool):
        self.folder, self.by_rank = folder, by_rank
        self._streams: dict[Path, Stream] = {}

    def streams(self) -> list[Stream]:
        """Return what there is to follow by now, in the order in which it has come."""
        paths = [names.OUT] if self.by_rank else [names.OUT, names.ERR]
        self._open(None, 0, *(self.folder / name for name in paths))
        attempts = folders_by_attempt(self.folder) if self.by_rank else []
        for attempt, homes in enumerate(attempts):
            for rank, home in enumerate(homes):
                self._open(rank, attempt, home / names.STDOUT, home / names.STDERR)
        return [*self._streams.values()]

    def _open(self, rank: int | None, attempt: int, *paths: Path) -> None:
        for path in paths:
            if path not in self._streams and path.exists():
                self._streams[path] = Stream(path, rank, attempt)

    def close(self) -> None:
        """Stop following."""
        for stream in self._streams.values():
            stream.close()


class Latest:
    """The last lines of each rank, in the last attempt.

    Args:
        tail: what is followed.
        most: how many bytes are read of what has come at once.
    """

    def __init__(self, tail: Tail, most: int):
        self.tail, self.most = tail, most
        self._kept: dict[Stream, list[bytes]] = {}

    def ranks(self) -> list[RankLog]:
        """Return what each has printed last."""
        streams = self.tail.streams()
        last = max((stream.attempt for stream in streams), default=0)
        there = [stream for stream in streams if stream.attempt == last]
        text = {(each.rank, each.is_error): self._text(each) for each in there}

        def files(rank: int | None) -> RankFiles:
            out, err = (text.get((rank, is_error), "") for is_error in (False, True))
            return RankFiles(stdout=out, stderr=err)

        if not self.tail.by_rank:
            return of_program(files(None))
        ranks = [each.rank for each in there if each.rank is not None]
        return [RankLog.of_output(files(r)) for r in range(max(ranks, default=-1) + 1)]

    def _text(self, stream: Stream) -> str:
        """Return the last lines of a file, also one that has only begun."""
        kept = self._kept.setdefault(stream, [])
        for lines in stream.blocks(self.most):
            kept += lines
        del kept[:-LAST_LINES]
        return clean(b"\n".join([*kept, stream.rest]).decode(errors="replace"))
