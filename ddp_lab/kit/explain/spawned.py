"""Read what a program wrote that starts its ranks itself: they share one output.

What `multiprocessing` has started for it, and how that ended, is written down by
children.py. A child that a library has started, say for a pool, is no rank.
"""

import json
import re
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_lab.kit.explain import stacks
from ddp_lab.kit.explain.files import MOST_READ, clip, read, read_json
from ddp_lab.kit.explain.logs import RunLog
from ddp_lab.kit.explain.rank_log import PROGRAM, RankLog
from ddp_lab.kit.explain.stderr import Part, lost_peer

# Libraries that start processes to help; `torch.multiprocessing` starts ranks.
HELPERS = ("multiprocessing.", "concurrent.", "torch.utils.data.", "joblib.")
# How multiprocessing introduces the traceback of a child, which its parent may ignore.
# Of several at once, the names may come first.
CHILD = re.compile(
    r"^Process (.+):\n(?=Traceback|  \+ Exception Group|Process .+:\n)", re.MULTILINE
)
NUMBER = re.compile(r"-(\d{1,6})(?::\d+)*$")  # of a child, in its usual name
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
# mp.spawn reports what one of its ranks has said or done.
REPORTED = re.compile(r"[Pp]rocess (\d+) terminated with ")
SPAWN = "torch.multiprocessing.spawn"  # which raises if a rank has failed
# The exit race (see rank.py) may still abort a child of mp.spawn that has said it all.
ABORT = re.compile(
    r"^Fatal Python error: Aborted.*?(?=^Traceback \(most recent|\Z)", re.M | re.S
)
POLITE = (-signal.SIGTERM, -signal.SIGINT)  # how somebody asks a process to end


@dataclass
class Child:
    """A process that the program has started by `multiprocessing`; see children.py."""

    pid: int
    name: str
    by: str
    """The module that has started it."""
    rank: int | None
    """None if it helps a library."""
    errors: str = ""
    """The file in which a rank of mp.spawn leaves its traceback."""
    code: int | None = None
    """None if its parent has not seen its end."""
    time: float = 0.0
    """When it ended."""
    asked: float = 0.0
    """When the program asked it to end, if it did."""
    gone: bool = False
    """Whether it has ended in a way that nobody could see."""
    said: str = ""
    """The traceback of a rank of mp.spawn, or of a fork."""
    before: str = ""
    """The traceback because of which a fork has called sys.exit()."""
    left: float = 0.0
    """When a fork began to leave by an exception."""

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, and not well."""
        return bool(self.code) and not self.asked

    @property
    def words(self) -> str:
        """The traceback that was its end."""
        gone = self.code and not self.asked and lost_peer(self.before)
        return self.said or (self.before if gone else "")

    @property
    def who(self) -> str:
        """As a reader may call it."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"{self.name} of {self.by}"

    @property
    def end(self) -> str:
        """How it ended, as in `was ended by SIGKILL`."""
        assert self.code is not None
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        return f"was ended by {signal.Signals(-self.code).name}"


@dataclass(frozen=True)
class Children:
    """What a program has started by `multiprocessing`."""

    parent: int = 0
    """The process of the program itself."""
    all: list[Child] = field(default_factory=list)
    no_rank: bool = False
    """Whether it called mp.spawn for no rank at all."""

    @classmethod
    def read(cls, folder: Path) -> "Children":
        """Return what `children` in the run's folder tells."""
        run, spawns, parent = cls(), [], 0
        early: dict[int, dict] = {}  # what forks say before their parent notes them
        for line in read(folder / "children").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # of a long file, which is not read whole
            if "name" in event:
                run._add(event)
                run._update(early.pop(event["pid"], {"pid": 0}))
            elif "parent" in event:
                parent = event["parent"]
            elif "spawns" in event:
                spawns.append(event["spawns"])
            elif "pid" in event and not run._update(event):
                early[event["pid"]] = event
        return replace(run, parent=parent, no_rank=bool(spawns) and not any(spawns))

    def _add(self, event: dict) -> None:
        by, rank = event["by"] or "", event.get("index")
        if rank is None and not by.startswith(HELPERS):
            rank = len(self.ranks)
        errors = event.get("errors", "")
        self.all.append(Child(event["pid"], event["name"], by, rank, errors))

    def _update(self, event: dict) -> bool:
        """Add what an event tells of a child; return whether that is known to live."""
        same = [child for child in self.all if child.pid == event["pid"]]
        if same and same[-1].left:  # as it has said itself
            said = same[-1].said or event.get("said", "")
            event = {**event, "time": same[-1].left, "said": said}
        if same and same[-1].code is None:  # a pid may come again: the last one
            vars(same[-1]).update(event)
            return True
        return False

    @property
    def ranks(self) -> list[Child]:
        """The children that are ranks."""
        return [child for child in self.all if child.rank is not None]

    @property
    def by_rank(self) -> dict[int, Child]:
        """What tells most of each rank: a child that failed, else the last one."""
        found: dict[int, Child] = {}
        for child in self.all:
            rank = child.rank
            if rank is not None and not (rank in found and found[rank].failed):
                found[rank] = child
        return found

    def ended(self, rank: int) -> float:
        """Return when a rank ended, as far as that is known."""
        child = self.by_rank.get(rank)
        return child.time if child else 0.0

    def rank_of(self, name: str) -> int | None:
        """Return the rank of the child that multiprocessing calls `name`."""
        ranks = [child.rank for child in self.ranks if child.name == name]
        number = NUMBER.search(name)  # of a child of a child, or one not written down
        return ranks[0] if ranks else int(number[1]) - 1 if number else None


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
        seen = {path.name for path in folder.glob("stack_*.json")}
        if not self.children.ranks and len(self.ranks) > 1 and seen == {"stack_0.json"}:
            program, log.stack = log.stack, []  # its ranks cannot be told apart
        if self.children.ranks or program:
            log.beside = {PROGRAM: program, **log.beside}
        for child in self.children.all:
            if child.failed and child.rank is None:
                log.beside[f"{child.who} {child.end}"] = []
        if any(child.failed for child in self.children.ranks):
            return
        raised, end = (read_json(folder / f"{n}.json") for n in ("raised", "end"))
        if raised or end and end["code"]:
            log.end, log.raised = None, raised
            log.code = end["code"] if end else None
            log.time = raised["time"] if raised else 0.0

    def failed(self, code: int) -> bool:
        """Tell whether the program has failed, or a child whose parent ignores it."""
        return code != 0 or bool(CHILD.search(self.stderr)) or any(self._ignored())

    def _ignored(self) -> list[Child]:
        """Return the ranks of whose failure the program has not been told."""
        return [
            child
            for child in self.children.ranks
            if child.failed and child.by != SPAWN and child.code not in POLITE
        ]

    def culprit(self, first: int | None) -> int | None:
        """Return the rank that the program itself names: they share one stderr."""
        if CHILD.search(self.stderr) or any(c.failed for c in self.children.ranks):
            return first
        named = REPORTED.search(self.stderr)
        return int(named[1]) if named else None

    def notes(self) -> list[str]:
        """Return what is odd about the processes of a run that succeeds."""
        odd = [child for child in self.children.all if child.failed]
        notes = [f"{child.who} {child.end}" for child in odd]
        if self.children.no_rank:
            notes.append("the program has started no rank")
        return notes


def _tell(log: RankLog, child: Child) -> None:
    """Add to a rank's log how the rank has ended, or at least what it has said."""
    if said := child.words:
        log.traceback, log.time = clip(said), child.time
        error = stacks.last_error(said)
        log.raised = {"error": error, "traceback": said, "time": child.time}
    log.stack = stacks.from_text(log.traceback) or log.stack
    if child.code is None:
        log.end = {"code": 0, "left_group": True} if child.gone else None
        return
    log.exit = {"code": child.code, "time": child.time, "asked": child.asked or False}
    log.code, log.time = None if child.asked else child.code, child.time
    if child.code == 0:
        log.end = {"code": 0, "left_group": True}  # as far as anybody knows


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
