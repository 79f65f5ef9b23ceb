"""Read what a program wrote that starts its ranks itself: they share one output.

Its ranks are what `multiprocessing` has started for it; see births.py.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ddp_lab.kit.record import stacks
from ddp_lab.kit.record.children import Child, Children
from ddp_lab.kit.record.files import MOST_READ, clip, read, read_json
from ddp_lab.kit.record.heard import REPORTED, lost_peer
from ddp_lab.kit.record.logs import RunLog
from ddp_lab.kit.record.rank_log import PROGRAM, RankLog
from ddp_lab.kit.record.stderr import Part

# How multiprocessing introduces the traceback of a child, which its parent may ignore.
# Of several at once, the names may come first.
CHILD = re.compile(
    r"^Process (.+):\n(?=Traceback|  \+ Exception Group|Process .+:\n)", re.MULTILINE
)
# A traceback and those that explain it. One that is not introduced begins another.
CHAINED = re.compile(
    r"(?<!following exception:\n\n)(?<!exception occurred:\n\n)"
    r"^(?=Traceback \(most recent call last\):)",
    re.MULTILINE,
)
# How multiprocessing ends a child, whoever's name stands above it.
ENDS_CHILD = re.compile(r".*\n  File .*\bprocess\.py\", line \d+, in _bootstrap\n")
# A line says whose it is; a number that has more digits is no rank's.
NAMES_RANK = re.compile(r"\[rank (\d{1,9})\] |\{.*\"rank\": (\d{1,9})\b(?!\.)")
# How torch begins each line of the exception that has ended a rank.
UNCAUGHT = re.compile(r"^\[rank(\d{1,3})\]: ?(.*\n?)", re.MULTILINE)
DONE = {"code": 0, "left_group": True}  # of an end that nobody has seen
SPAWN = "torch.multiprocessing.spawn"  # which raises if a rank has failed
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

    children: Children = field(default_factory=Children)

    @classmethod
    def read(cls, folder: Path) -> "SpawnLog":
        run = cls.read_output(folder)
        for path in folder.glob("gone_*"):
            _rank(run.ranks, int(path.name.removeprefix("gone_"))).end = DONE
        for path in sorted(folder.glob("stack_*.json")):
            rank = int(path.stem.removeprefix("stack_"))
            log = _rank(run.ranks, rank)
            log.stack = stacks.from_json(read_json(path))
            log.add_seen(read_json(folder / f"seen_{rank}.json"))
        for rank, child in run.children.by_rank.items():
            if child.code is not None or child.gone or child.said:
                _tell(_rank(run.ranks, rank), child)
        run._tell_of_parent(folder)
        return run

    @classmethod
    def read_output(cls, folder: Path, limit: int = MOST_READ) -> "SpawnLog":
        stdout, stderr = (read(folder / name, limit) for name in ("out", "err"))
        children = Children.read(folder)
        logs = _split(stdout, children)
        _split_errors(logs, stderr, children)
        return cls(logs, stderr, children=children)

    def _tell_of_parent(self, folder: Path) -> None:
        """Let rank 0 stand for the program itself, if no rank has failed before it."""
        log = self.ranks[0]
        program = stacks.from_json(read_json(folder / "stack.json"))
        seen = {
            path.name for p in ("stack_*.json", "gone_*") for path in folder.glob(p)
        }
        if not self.children.ranks and len(self.ranks) > 1 and seen == {"stack_0.json"}:
            program, log.stack = log.stack, []  # its ranks cannot be told apart
        if self.children.ranks or program:
            log.beside = {PROGRAM: program, **log.beside}
        for child in self.children.all:
            if child.failed and child.rank is None:
                log.dead.append(child)
        if any(child.failed for child in self.children.ranks) or self._by_hand():
            return
        raised, end = (read_json(folder / f"{n}.json") for n in ("raised", "end"))
        if raised or end and end["code"]:
            log.end, log.raised = end, raised
            log.code = end["code"] if end else None
            log.time = raised["time"] if raised else 0.0

    def failed(self, code: int) -> bool:
        """Tell whether the program has failed, or a child whose parent ignores it."""
        said = CHILD.search(self.stderr) or self._by_hand()
        unheard = [child for child in self.children.ranks if child.by != SPAWN]
        return code != 0 or bool(said) or any(child.died for child in unheard)

    def _by_hand(self) -> dict[int, str]:
        """Return what ranks have raised that it has started in some way of its own."""
        return _uncaught(self.stderr, self.children)

    def culprit(self, first: int | None) -> int | None:
        """Return the rank that the program itself names: they share one stderr."""
        if CHILD.search(self.stderr) or any(c.failed for c in self.children.ranks):
            return first
        if self._by_hand():
            return first
        named = REPORTED.search(self.stderr)
        return int(named[1]) if named else None

    def failed_children(self) -> list[tuple[int | None, Child]]:
        return [(None, child) for child in self.children.all if child.failed]

    @property
    def no_rank(self) -> bool:
        return self.children.no_rank


def _tell(log: RankLog, child: Child) -> None:
    """Add to a rank's log how the rank has ended, or at least what it has said."""
    if said := child.words:
        log.traceback, log.time = clip(said), child.time
        error = stacks.last_error(said)
        log.raised = {"error": error, "traceback": said, "time": child.time}
    log.stack = stacks.from_text(log.traceback) or log.stack
    if child.code is None:
        log.end = DONE if child.gone else None
        return
    log.exit = {"code": child.code, "time": child.time, "asked": child.asked or False}
    log.code, log.time = None if child.asked else child.code, child.time
    if child.code == 0:
        log.end = DONE


def _split(stdout: str, children: Children) -> list[RankLog]:
    """Return the logs of ranks that shared one output; see `SpawnLog`."""
    # An unbuffered print is two writes, so lines of two ranks may have run together.
    start = r'(?<=.)(?=\[rank \d+\] |\{"rank": )'
    lines = re.sub(start, "\n", stdout).split("\n")
    found = [NAMES_RANK.match(line) for line in lines]
    named = [int(rank[1] or rank[2]) if rank else None for rank in found]
    count = _count({rank for rank in named if rank is not None}, children)
    logs = [RankLog() for _ in range(count)]
    for line, rank in zip(lines, named, strict=True):
        logs[rank if rank and rank < count else 0].add_line(line)
    return logs


def _count(named: set[int], children: Children) -> int:
    """Return how many ranks there are, of which lines may name any number."""
    if ranks := {child.rank for child in children.ranks}:
        return max([0, *(named & ranks)]) + 1
    return max(1, next(n for n in range(len(named) + 1) if n not in named))


def _split_errors(logs: list[RankLog], stderr: str, children: Children) -> None:
    """Give each rank the traceback that multiprocessing has printed for it."""
    if "terminated with the following error:" in stderr:
        stderr = ABORT.sub("", stderr)
    # What comes before the first child's own block, then name and block in turn.
    parent, *blocks = CHILD.split(stderr)
    said: dict[int, str] = {}
    silent: list[int] = []  # those who spoke at once, and what they have said
    mixed: list[str] = []
    for name, text in zip(blocks[::2], blocks[1::2], strict=True):
        found = CHAINED.split(text.lstrip("\n"))[1:] or [text]
        rank = children.rank_of(name)
        if rank is not None and rank not in said and (silent or not found[0].strip()):
            silent.append(rank)
        else:
            own = found.pop(0)
            if rank is not None:
                said.setdefault(rank, own)
        ends = [each for each in found if ENDS_CHILD.match(each)]
        mixed += ends if silent else []
        parent += "".join(each for each in found if each not in mixed)
    silent.sort(key=children.ended)
    said |= zip(silent, sorted(mixed, key=lost_peer), strict=False)
    if by_hand := _uncaught(stderr, children):
        said, parent = by_hand, UNCAUGHT.sub("", parent)
    logs[0].add_stderr(parent)
    for log in logs:
        log.others_lost_peer = lost_peer(parent)
    if any(child.failed for child in children.ranks) or said:
        _set_aside(logs[0])
    for rank, text in said.items():
        log = _rank(logs, rank)
        before = log.remarks
        log.add_stderr(text)
        log.remarks, log.guessed = before + log.remarks, False


def _uncaught(stderr: str, children: Children) -> dict[int, str]:
    """Return the exceptions that ended ranks started in some way of its own.

    What the program itself says, if it is rank 0, is better known (see rank.py).
    """
    said: dict[int, str] = {}
    for rank, line in UNCAUGHT.findall(stderr) if children.by_hand else []:
        said[int(rank)] = said.get(int(rank), "") + line
    return said if any(said) else {}


def _set_aside(log: RankLog) -> None:
    """Make a warning of what the program says of a rank that has failed."""
    said, log.traceback, log.guessed = log.traceback, "", False
    if said and not REPORTED.search(said):
        log.remarks.append(Part(stacks.last_error(said)))


def _rank(logs: list[RankLog], rank: int) -> RankLog:
    """Return the log of `rank`; until now, nobody may have known of it."""
    lost = logs[0].others_lost_peer
    missing = range(rank + 1 - len(logs))
    logs += [RankLog(others_lost_peer=lost) for _ in missing]
    return logs[rank]
