"""The states in which a rank may stand, each with its own sentence."""

from dataclasses import dataclass, field

from whichrank.explain.cause import NO_LINE, SHOWN, Ended, Stand
from whichrank.record.calls import Call
from whichrank.record.words import ranks

# What a rank waits in that names no peer, and may be any message; and all that are.
WORK = "Work.wait"
MESSAGES = ("send", "recv", "send_object_list", "recv_object_list", WORK)
UNKNOWN_CALL = "a communication"  # in which a rank has given up


@dataclass(frozen=True)
class Waits(Stand):
    """It waits for others in a communication."""

    state, waits = "waits", True

    name: str = ""
    """The function that it waits in, such as `all_reduce` or `send`."""
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
    guessed: bool = field(default=False, compare=False, repr=False)
    """Whether what it waits in is a guess by its line."""

    @property
    def by_message(self) -> bool:
        """Whether it waits for a message, or may: a collective needs all others."""
        return self.call is None and self.name in (*MESSAGES, UNKNOWN_CALL)

    @property
    def group(self) -> str:
        """The group of its call; nothing if that is not known."""
        return self.call.group if self.call else ""

    def does(self, at: str) -> str:
        """Return in which call it waits, and for whom."""
        others = [] if self.watched else self.others()
        call = self.call.whole if self.call else self.name
        return "; ".join([f"{self._in(call)}{at}", *others])

    def now(self) -> str:
        """Return it where a picture shows the call."""
        return self._in(self.name)

    def _in(self, call: str) -> str:
        return f"waits in {call}{f' for {ranks(self.peers)}' if self.peers else ''}"


@dataclass(frozen=True)
class Elsewhere(Stand):
    """It is in the program's own code."""

    state = "elsewhere"

    def does(self, at: str) -> str:
        """Return its line, and where the rest of it stands, if that is not below."""
        others = [] if self.watched else self.others()
        return "; ".join([f"stands{at or f' at {NO_LINE}'}", *others])

    def now(self) -> str:
        """Return it where a picture shows the line."""
        return f"is in its own code{self._process()}"


@dataclass(frozen=True)
class Lingers(Stand):
    """It has done its main program, and does not end."""

    state = "lingers"

    name: str = ""
    """What of it is not done, such as `thread Thread-1`."""

    def does(self, at: str) -> str:
        """Return what has not ended."""
        still = f"is still{at}" if at else "has not ended"
        still = f"{self.name} {still}" if self.name else "it does not end"
        return f"has ended its main program, but {still}"

    def now(self) -> str:
        """Return it where a picture shows the line."""
        return f"does not end{self._process()}"

    def clause(self) -> str:
        """Return it with a short line."""
        return self.does(f" at {self.frame.short}" if self.frame else "")


@dataclass(frozen=True)
class Halted(Stand):
    """A signal has halted it, or a debugger."""

    state = "stopped"

    @property
    def unable(self) -> str:
        """That it is halted, and by what."""
        by = "by a signal or a debugger" if self.watched else "(SIGSTOP)"
        return f"is stopped {by}"

    def does(self, at: str) -> str:
        """Return that it is halted."""
        return f"{self.unable}{at}"


@dataclass(frozen=True)
class Left(Stand):
    """It has ended, or will, for it has raised."""

    state = "left"

    end: Ended | None = None
    """How it ended if not well, or what it has raised before it came here."""

    @property
    def ended_well(self) -> bool:
        """Whether it has done its program; of one that we only miss nobody knows."""
        return self.end is None and not self.watched

    @property
    def unable(self) -> str:
        """How it ended, if not well."""
        return self.end.ending() if self.end else ""

    def does(self, at: str) -> str:
        """Return that it has ended, and how."""
        gone = "is not there: it has ended, or was never started"
        return self.unable or (gone if self.watched else f"has left{at}")


@dataclass(frozen=True)
class Unknown(Stand):
    """Nothing tells but what it has printed."""

    state = "unknown"

    printed: str = ""
    """Its last line."""

    def does(self, at: str) -> str:
        """Return its last line."""
        return f"last printed {self.printed!r}" if self.printed else "printed nothing"


# --- of a process that was watched from outside ---


@dataclass(frozen=True)
class Moves(Stand):
    """It is at another place, or has other values, from look to look."""

    state = "moves"

    places: tuple[str, ...] = ()
    """The lines at which it was seen."""

    def does(self, at: str) -> str:
        """Return where it was seen."""
        more = " and more" if len(self.places) > SHOWN else ""
        lines = f"at {', '.join(self.places[-SHOWN:])}{more}"
        return f"moves: seen {lines if self.places else 'in libraries only'}"


@dataclass(frozen=True)
class Computes(Stand):
    """It stays where it is, and uses the CPU."""

    state = "busy"

    share: float = 0.0
    """Of a core."""

    def does(self, at: str) -> str:
        """Return how much it computes."""
        return f"is busy{at} ({self.share:.0%} of a core)"


@dataclass(frozen=True)
class Unseen(Stand):
    """No look has shown its stack."""

    state = "unseen"

    trouble: str = ""
    """Why not."""

    def does(self, at: str) -> str:
        """Return why it cannot be seen."""
        return self.trouble or "gives no stack"


@dataclass(frozen=True)
class Away(Stand):
    """It is on another machine, or not there at all: nothing tells."""

    state = "away"

    def does(self, at: str) -> str:
        """Return where to ask for it."""
        there = "if it runs on another, `whichrank why` there tells"
        return f"is not on this machine: {there}"
