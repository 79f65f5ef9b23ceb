"""How a rank has ended, or a run that was stopped."""

from dataclasses import dataclass

from whichrank.explain.cause import Cause, Ended
from whichrank.record.words import ended_by, signal_name

USUAL_SENDER = {
    "SIGKILL": "usually sent by the system when memory runs out",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "a crash in native code, or a failed check there",
    "SIGBUS": "often a full /dev/shm",
}
# Of a signal that asks torchrun to end.
ASKED_BY: dict[object, str] = {
    "SIGTERM": "usually sent by a scheduler, or by `kill`",
    "SIGHUP": "usually sent because a terminal was closed",
}
# Why a run was ended early. From "guard" on it was a signal from outside: the system
# sends one for want of memory, somebody by hand, or a rank to its own parents.
STOPPED = {
    "timeout": "no end after {0:g} seconds; all processes were stopped",
    "interrupt": "stopped by hand; all processes were ended",
    "output": "more than {0:,} bytes of output; all processes were stopped",
    "guard": "the guard of this run was ended by {0} from outside; all processes were "
    "stopped",
    "torchrun": "torchrun itself was ended by {0}, and its ranks with it",
    "asked": "torchrun was asked to end by {0}, and has ended its ranks",
    "nodes": "what plays the nodes on this machine (room.py) was ended by {0} from "
    "outside, and the nodes with it",
    "srun": "srun was ended by {0} from outside, and the ranks with it",
    "slurm": "ended by SLURM: {0}",
    "warm": "the warm process, which is the parent of torchrun and of all ranks, was "
    "ended by {0}, and the run with it; the next run starts a new one",
}


@dataclass(frozen=True, kw_only=True)
class Raised(Ended):
    """By an exception."""

    error: str
    """In the words of the program, of torch, or of the system."""
    code: int | None = None
    inside: str = ""
    """The function of torch.distributed that has raised it, if one has."""

    def __str__(self) -> str:
        return self.error

    def ending(self) -> str:
        """Return it after the rank's name."""
        since = f", and {self.since}" if self.since else ""
        return f"has raised {self.error}{since}"

    @property
    def way(self) -> tuple:
        """The exception's type: a message may name a step or an address."""
        return Raised, self.error.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class Signalled(Ended):
    """By a signal."""

    code: int
    """The exit code, negative."""

    def __str__(self) -> str:
        name = signal_name(-self.code) or f"signal {-self.code}"
        sender = USUAL_SENDER.get(name)
        return f"ended by {name} ({sender})" if sender else f"ended by {name}"

    def ending(self) -> str:
        """Return it after the rank's name."""
        return ended_by(self.code)

    @property
    def way(self) -> tuple:
        """Which signal."""
        return Signalled, self.code


@dataclass(frozen=True, kw_only=True)
class Exited(Ended):
    """With an exit code of its own."""

    code: int
    words: str = ""
    """The last that it has said."""

    def __str__(self) -> str:
        return f"exit code {self.code}{f': {self.words}' if self.words else ''}"

    def ending(self) -> str:
        """Return it after the rank's name."""
        return f"has ended with exit code {self.code}"

    @property
    def way(self) -> tuple:
        """Which code."""
        return Exited, self.code


@dataclass(frozen=True, kw_only=True)
class Stopped(Cause):
    """The run was ended by the launcher, or by a signal to what starts the ranks."""

    by: str
    """A key of `STOPPED`."""
    limit: float | str = 0
    """The seconds or bytes that were allowed, or the signal."""

    def __str__(self) -> str:
        sender = ASKED_BY.get(self.limit) if self.by == "asked" else None
        limit = f"{self.limit} ({sender})" if sender else self.limit
        return STOPPED[self.by].format(limit)
