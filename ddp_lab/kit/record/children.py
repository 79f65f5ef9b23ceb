"""What a process has started by `multiprocessing`, and how that ended.

It is written down by run/births.py. Of a program that starts its ranks itself these
are its ranks, except for a child that a library has started, say for a pool.
"""

import json
import re
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_lab.kit.record.files import read
from ddp_lab.kit.record.heard import lost_peer

BY_HAND = "subprocess"  # of a rank that Popen has started
# Libraries that start processes to help; `torch.multiprocessing` starts ranks.
HELPERS = ("multiprocessing.", "concurrent.", "torch.utils.data.", "joblib.")
NUMBER = re.compile(r"-(\d{1,6})(?::\d+)*$")  # of a child, in its usual name
POLITE = (-signal.SIGTERM, -signal.SIGINT)  # how somebody asks a process to end


@dataclass
class Child:
    """A process that the program has started by `multiprocessing`."""

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
    def died(self) -> bool:
        """Whether it failed, and nobody can have wanted that."""
        return self.failed and self.code not in POLITE

    @property
    def words(self) -> str:
        """The traceback that was its end."""
        gone = self.code and not self.asked and lost_peer(self.before)
        return self.said or (self.before if gone else "")


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

    @property
    def by_hand(self) -> bool:
        """Whether the ranks are programs of their own, whose words torch may begin."""
        return all(child.by == BY_HAND for child in self.ranks)

    def ended(self, rank: int) -> float:
        """Return when a rank ended, as far as that is known."""
        child = self.by_rank.get(rank)
        return child.time if child else 0.0

    def rank_of(self, name: str) -> int | None:
        """Return the rank of the child that multiprocessing calls `name`."""
        ranks = [child.rank for child in self.ranks if child.name == name]
        number = NUMBER.search(name)  # of a child of a child, or one not written down
        return ranks[0] if ranks else int(number[1]) - 1 if number else None
