"""Read what a program wrote that starts its ranks itself: they share one output."""

import re
from dataclasses import dataclass
from pathlib import Path

from ddp_lab.kit.explain import stacks
from ddp_lab.kit.explain.logs import MOST_READ, RankLog, RunLog, read, read_json

# How multiprocessing introduces the traceback of a child, which its parent may ignore.
CHILD = re.compile(r"^Process \S*?-(\d+)(?::\d+)*:\n(?=Traceback)", re.MULTILINE)
# The exit race (see rank.py) may still abort a child of mp.spawn that has said it all.
ABORT = re.compile(
    r"^Fatal Python error: Aborted.*?(?=^Traceback \(most recent|\Z)", re.M | re.S
)


@dataclass(frozen=True)
class SpawnLog(RunLog):
    """The log of a program that starts its ranks itself: they share one output.

    A line `[rank 1] ...` belongs to rank 1, a JSON object to its "rank", the traceback
    of a child of multiprocessing to the child, and anything else to rank 0.
    """

    @classmethod
    def read(cls, folder: Path) -> "SpawnLog":
        run = cls.read_output(folder)
        for path in sorted(folder.glob("stack_*.json")):
            rank = int(path.stem.removeprefix("stack_"))
            _rank(run.ranks, rank).stack = stacks.from_json(read_json(path))
        return run

    @classmethod
    def read_output(cls, folder: Path, limit: int = MOST_READ) -> "SpawnLog":
        stdout, stderr = (read(folder / name, limit) for name in ("out", "err"))
        return cls(_split(stdout, stderr), stderr)

    def failed(self, code: int) -> bool:
        """Tell whether the program has failed, or a child whose parent ignores it."""
        return code != 0 or bool(CHILD.search(self.stderr))

    def culprit(self, first: int | None) -> int | None:
        """Return the rank that the program itself names: they share one stderr."""
        if CHILD.search(self.stderr):
            return first
        named = re.search(r"[Pp]rocess (\d+) terminated", self.stderr)
        return int(named[1]) if named else None


def _split(stdout: str, stderr: str) -> list[RankLog]:
    """Return the logs of ranks that shared one output; see `SpawnLog`."""
    logs = [RankLog()]
    # An unbuffered print is two writes, so lines of two ranks may have run together.
    start = r'(?<=.)(?=\[rank \d+\] |\{"rank": )'
    for line in re.sub(start, "\n", stdout).split("\n"):
        rank = re.match(r"\[rank (\d+)\] |\{.*\"rank\": (\d+)", line)
        _rank(logs, int(rank[1] or rank[2]) if rank else 0).add_line(line)
    if "terminated with the following error:" in stderr:
        stderr = ABORT.sub("", stderr)
    # What comes before the first child's own block, then number and block in turn.
    first, *blocks = CHILD.split(stderr)
    logs[0].add_stderr(first)
    for number, text in zip(blocks[::2], blocks[1::2], strict=True):
        _rank(logs, int(number) - 1).add_stderr(text)  # multiprocessing counts from 1
    return logs


def _rank(logs: list[RankLog], rank: int) -> RankLog:
    """Return the log of `rank`; until now, nobody may have known of it."""
    logs += [RankLog() for _ in range(rank + 1 - len(logs))]
    return logs[rank]
