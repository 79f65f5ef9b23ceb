"""Where a rank stands, and what a cause is: facts, each with its own sentence.

The causes themselves are in `causes/`, a dataclass for each. Where one rank or node is
to blame, a report puts its name in front, so that a sentence goes on from there:
`has not come, and ...`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from whichrank.explain.symptoms import Symptom
from whichrank.record.calls import Call
from whichrank.record.stacks import Frame
from whichrank.record.words import ranks

MEETING = "init_process_group"
NO_LINE = "a line of a library"
SHOWN = 3  # of the lines at which a moving rank was seen, and of what is beside it


@dataclass(frozen=True)
class Watched:
    """What several looks from outside show of a rank beside its stack."""

    pid: int
    share: float = 0.0
    """Of a core."""
    places: tuple[str, ...] = ()
    """The lines at which it was seen, if it moves."""
    trouble: str = ""
    """Why it cannot be seen."""


@dataclass(frozen=True)
class Stand:
    """Where one rank stood."""

    rank: int
    state: str
    """"waits" in a communication, "elsewhere", "stopped" (halted by a signal),
    "lingers" (has done its main program, and does not end), "left", or "unknown";
    of one that is watched also "moves", "busy", "away" (on another machine), or
    "unseen"."""
    frame: Frame | None = None
    """The program's own line."""
    name: str = ""
    """The function that it waits in, such as `all_reduce` or `send`; or what of it
    lingers, such as `thread Thread-1`."""
    call: Call | None = None
    """The same as the flight recorder has it; it knows no send and recv of gloo."""
    peers: tuple[int, ...] = ()
    """The ranks that it waits for, as far as that is known."""
    root: int | None = None
    """The src or dst of a collective that has one."""
    names_group: bool = False
    """Whether the call was given a group, of which a stack does not tell the ranks."""
    members: str = ""
    """The ranks of the group that it makes, as they were given."""
    end: "Ended | None" = None
    """How it ended if not well, or what it has raised before it came here."""
    outer: tuple[Frame, ...] = field(default=(), repr=False, compare=False)
    """All lines of the program in which it was, from the innermost."""
    beside: tuple[tuple[str, Frame | None], ...] = ()
    """Where its other threads and its processes stand, by name."""
    printed: str = ""
    """Its last line, if nothing else is known."""
    watched: Watched | None = None

    @property
    def group(self) -> str:
        """The group of its call; nothing if that is not known."""
        return self.call.group if self.call else ""

    def __str__(self) -> str:
        """Return, say, `waits in send for rank 1 at sick.py:45 in ...`."""
        return f"{self._stands()}{self._process()}"

    def now(self) -> str:
        """Return what the rank does, where a picture shows its line and its call."""
        if self.state == "waits":
            return f"waits in {self.name}{self._for_peers()}"
        if self.state == "elsewhere":
            return f"is in its own code{self._process()}"
        if self.state == "lingers":
            return f"does not end{self._process()}"
        return str(replace(self, frame=None))

    def others(self) -> list[str]:
        """Return where the other threads of a rank stand, and its processes."""
        return [f"{name} at {f.place}" if f else name for name, f in self.beside]

    def place(self) -> str:
        """Return its line, and where its other threads stand."""
        return "; ".join([self.short(), *self.others()])

    def short(self) -> str:
        """Return its line, as in `sick.py:45`."""
        return self.frame.short if self.frame else NO_LINE

    def halted(self) -> str:
        """Return that a signal has halted it."""
        by = "by a signal or a debugger" if self.watched else "(SIGSTOP)"
        return f"is stopped {by}"

    def clause(self) -> str:
        """Return where it is, if it waits for no other: `stands at sick.py:45`."""
        if self.state == "lingers":
            return self._lingers(self.frame.short if self.frame else "")
        return f"stands at {self.place()}"

    def _stands(self) -> str:
        at, seen = (f" at {self.frame.place}" if self.frame else ""), self.watched
        match self.state:
            case "waits":
                name = self.call.whole if self.call else self.name
                return f"waits in {name}{self._for_peers()}{at}"
            case "left" if self.end:
                return self.end.ending()
            case "left" if seen:
                return "is not there: it has ended, or was never started"
            case "left":
                return "has left"
            case "stopped":
                return f"{self.halted()}{at}"
            case "lingers":
                return self._lingers(self.frame.place if self.frame else "")
            case "away":
                return "is not on this machine: `whichrank why` there tells"
            case "moves" if seen:
                more = " and more" if len(seen.places) > SHOWN else ""
                lines = f"at {', '.join(seen.places[-SHOWN:])}{more}"
                return f"moves: seen {lines if seen.places else 'in libraries only'}"
            case "busy" if seen:
                return f"is busy{at} ({seen.share:.0%} of a core)"
            case "unseen" if seen:
                return seen.trouble or "gives no stack"
            case "elsewhere" if seen:
                return f"stands{at or f' at {NO_LINE}'}"
            case "elsewhere":
                return "; ".join([f"stands{at}", *self.others()])
        return f"last printed {self.printed!r}" if self.printed else "printed nothing"

    def _lingers(self, place: str) -> str:
        still = f"is still at {place}" if place else "has not ended"
        still = f"{self.name} {still}" if self.name else "it does not end"
        return f"has ended its main program, but {still}"

    def _for_peers(self) -> str:
        return f" for {ranks(self.peers)}" if self.peers else ""

    def _process(self) -> str:
        """Return which process it is of those that were watched, and its threads."""
        if not self.watched or not self.watched.pid:
            return ""
        there = [(name, f) for name, f in self.beside[:SHOWN] if f]
        more = "".join(
            f"\n    its {name.removeprefix('a ')} stands at {f.place}"
            for name, f in there
        )
        return f" [pid {self.watched.pid}]{more}"


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
