"""Where a rank stands, and what a cause is: facts, each with its own sentence.

The stands themselves are in `states.py`, the causes in `causes/`, a dataclass for each.
Where one rank or node is to blame, a report puts its name in front, so that a sentence
goes on from there: `has not come, and ...`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from whichrank.explain.symptoms import Symptom
from whichrank.record.stacks import Frame

MEETING = "init_process_group"
NO_LINE = "a line of a library"
SHOWN = 3  # of several lines, and of what is beside a rank


@dataclass(frozen=True)
class Stand(ABC):
    """Where one rank stood: a class of `states.py`, and what each of them has."""

    rank: int
    frame: Frame | None = None
    """The program's own line."""
    _: KW_ONLY
    outer: tuple[Frame, ...] = field(default=(), repr=False, compare=False)
    """All lines of the program in which it was, from the innermost."""
    caller: Frame | None = field(default=None, repr=False, compare=False)
    """The line that calls the function of its own line, if that tells ranks apart."""
    beside: tuple[tuple[str, Frame | None], ...] = ()
    """Where its other threads and its processes stand, by name."""
    pid: int | None = None
    """Of the process, if it was watched from outside; 0 if there is none."""

    state: ClassVar[str]
    """Its name for other programs, as in a `--report`."""
    waits: ClassVar[bool] = False
    """Whether it waits for other ranks in a communication."""

    @abstractmethod
    def does(self, at: str) -> str:
        """Return what the rank does `at` its line, which may be empty."""

    def __str__(self) -> str:
        """Return, say, `waits in send for rank 1 at sick.py:45 in ...`."""
        at = f" at {self.frame.place}" if self.frame else ""
        at += f", called at {self.caller.short}" if self.caller else ""
        return f"{self.does(at)}{self._process()}"

    def now(self) -> str:
        """Return what the rank does, where a picture shows its line and its call."""
        return f"{self.does('')}{self._process()}"

    @property
    def name(self) -> str:
        """The function that it waits in, or what of it lingers; nothing of others."""
        return ""

    @property
    def peers(self) -> tuple[int, ...]:
        """The ranks that it waits for, as far as that is known."""
        return ()

    @property
    def end(self) -> "Ended | None":
        """How it ended if not well, or what it has raised before it came here."""
        return None

    @property
    def unable(self) -> str:
        """Why it will not come, ever: it was halted, or has raised; else nothing."""
        return ""

    @property
    def ended_well(self) -> bool:
        """Whether it has done its program."""
        return False

    @property
    def watched(self) -> bool:
        """Whether several looks from outside tell of it."""
        return self.pid is not None

    def others(self) -> list[str]:
        """Return where the other threads of a rank stand, and its processes."""
        return [f"{name} at {f.place}" if f else name for name, f in self.beside]

    def place(self) -> str:
        """Return its line, and where its other threads stand."""
        return "; ".join([self.short(), *self.others()])

    def short(self) -> str:
        """Return its line, as in `sick.py:45`."""
        return self.frame.short if self.frame else NO_LINE

    def clause(self) -> str:
        """Return where it is, if it waits for no other: `stands at sick.py:45`."""
        return f"stands at {self.place()}"

    def _process(self) -> str:
        """Return which process it is of those that were watched, and its threads."""
        if not self.pid:
            return ""
        there = [(name, f) for name, f in self.beside[:SHOWN] if f]
        more = "".join(
            f"\n    its {name.removeprefix('a ')} stands at {f.place}"
            for name, f in there
        )
        return f" [pid {self.pid}]{more}"


@dataclass(frozen=True, kw_only=True)
class Cause(ABC):
    """Why something happened: whom it blames, and at which line."""

    rank: int | None = None
    """The one to blame, if it is one alone."""
    frame: Frame | None = None
    """The program's own line."""
    symptom: Symptom | None = None
    """What this is called, if it is a known way to go wrong."""
    node: int | None = None
    """The node to blame, if it is one and no rank is."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the cause as one line."""

    @property
    def advice(self) -> str:
        """What is to be known or done about it, beside its sentence; may be empty."""
        return ""

    @property
    def tells_all(self) -> int | None:
        """The one rank of which the sentence tells all that its stand would."""
        return None

    def who(self, places: Mapping[int, str]) -> str:
        """Return whom a report blames: a rank, and where that is; a node; or the run.

        Args:
            places: of each rank on several nodes where it is.
        """
        if self.rank is not None:
            return rank_at(self.rank, places)
        return "the run" if self.node is None else f"node {self.node}"

    @property
    def way(self) -> tuple:
        """What it has in common with another one of its kind that went alike."""
        return (type(self),)


@dataclass(frozen=True, kw_only=True)
class Ended(Cause):
    """How a rank has ended, if not well."""

    since: Stand | None = None
    """Where it stands since, as in a `finally`: it has told nobody yet."""

    @abstractmethod
    def ending(self) -> str:
        """Return it after the rank's name: `was ended by SIGKILL`."""


def rank_at(number: int, places: Mapping[int, str]) -> str:
    """Return `rank 3`, and where it is if there are several nodes."""
    place = places.get(number)
    return f"rank {number} ({place})" if place else f"rank {number}"


def odd_one(of_rank: Mapping[int, object]) -> int | None:
    """Return the rank that differs from all others, if there is exactly one."""
    counts = Counter(of_rank.values())
    odd = [rank for rank, what in of_rank.items() if counts[what] == 1]
    return odd[0] if len(counts) == 2 and len(odd) == 1 else None
