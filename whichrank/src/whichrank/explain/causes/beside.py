"""What is told beside a cause, and what is odd about a run that succeeds."""

from dataclasses import dataclass

from whichrank.explain.cause import Cause, Stand
from whichrank.explain.causes.node import SHARED_STORE, NodesChanged
from whichrank.explain.causes.waiting import CallsDiffer
from whichrank.explain.states import Computes, Elsewhere, Moves, Waits
from whichrank.explain.symptoms import Symptom
from whichrank.record.files import shorten
from whichrank.record.words import duration, listed, ranks, times

BUG = "this is a bug, not a fault, and restarting does not help"


@dataclass(frozen=True, kw_only=True)
class KnownAs(Cause):
    """What a failure is called that is a known way to go wrong."""

    symptom: Symptom

    def __str__(self) -> str:
        return f"that is: {self.symptom.means}"


@dataclass(frozen=True, kw_only=True)
class NotTheSame(Cause):
    """A call was not the same on all ranks, and nobody has noticed."""

    of: CallsDiffer
    failed: bool = False
    """Whether a rank has failed after it."""

    def __str__(self) -> str:
        when = "before" if self.failed else "not the same on all ranks"
        told = [self.of.differs, *([str(self.of.before)] if self.of.before else [])]
        return f"{when}: {'; '.join(told)}"


@dataclass(frozen=True, kw_only=True)
class Complaint(Cause):
    """How a rank has ended that has only noticed the cause."""

    of: Cause

    def __str__(self) -> str:
        return f"rank {self.rank}: {shorten(str(self.of))}"


@dataclass(frozen=True, kw_only=True)
class Printed(Cause):
    """A traceback that was not the end: of a thread, or caught and logged."""

    error: str

    def __str__(self) -> str:
        who = "it" if self.rank is None else f"rank {self.rank}"
        at = f", at {self.frame.short}" if self.frame else ""
        return f"before, {who} printed a traceback: {shorten(self.error)}{at}"


@dataclass(frozen=True, kw_only=True)
class NotMetAgain(Cause):
    """Ranks were started again, and did not find each other."""

    of: Cause
    shares_store: bool

    def __str__(self) -> str:
        again = shorten(str(self.of))
        sentence = f"torchrun restarted the ranks, which did not meet again: {again}"
        return f"{sentence}; {SHARED_STORE}" if self.shares_store else sentence


@dataclass(frozen=True, kw_only=True)
class StoodStill(Cause):
    """For how long nothing has moved, or what does, of a job that was watched."""

    seconds: float
    stands: tuple[Stand, ...]

    def __str__(self) -> str:
        held = f"for at least {duration(self.seconds)}"
        states = {type(stand) for stand in self.stands}
        if states & {Waits, Elsewhere} and not states & {Moves, Computes}:
            return f"nothing has moved {held}"
        if Computes in states:
            return f"a long computation, or a loop without an end, {held}"
        if {Waits, Moves} <= states:
            return f"those that wait have waited {held}; what moves may yet come"
        return ""


@dataclass(frozen=True, kw_only=True)
class Unrecorded(Cause):
    """NCCL's calls, of which there is no record."""

    def __str__(self) -> str:
        return (
            "NCCL: a rank at a line that reads from its GPU may wait there for a call "
            "that it has made before; TORCH_FR_BUFFER_SIZE=2000 keeps a record of them"
        )


# --- the attempts before the last one ---


@dataclass(frozen=True)
class Attempts:
    """How the attempts before the last one failed: torchrun starts ranks again."""

    ways: tuple[tuple[tuple[int, ...], Cause], ...]
    """The numbers of those that failed alike, from 1, and how."""
    count: int
    """Of all attempts, with the last one."""
    same: bool = False
    """Whether all of them failed as the last one did, at a line of the program."""

    def sentences(self) -> list[str]:
        """Return in which ways they have failed."""
        if self.same:
            many = "both attempts" if self.count == 2 else f"all {self.count} attempts"
            return [f"the same error at the same line in {many}: {BUG}"]
        return [
            f"{_numbers(numbers)} of {self.count} {_brief(why)}"
            for numbers, why in self.ways
        ]


def _brief(why: Cause) -> str:
    """Return how an attempt ended."""
    if isinstance(why, NodesChanged):  # which is no failure of the attempt's own
        return f"ended: {why}"
    at = f" at {why.frame.place}" if why.frame else ""
    return f"failed: {why.who({})}: {shorten(str(why))}{at}"


def _numbers(numbers: tuple[int, ...]) -> str:
    """Return `attempt 1`, `attempts 1 and 3`, or `attempts 1 to 9`."""
    if len(numbers) == 1:
        return f"attempt {numbers[0]}"
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and [*numbers] == [*range(first, last + 1)]:
        return f"attempts {first} to {last}"
    return f"attempts {listed(map(str, numbers))}"


# --- what is odd about a run that succeeds ---


@dataclass(frozen=True, kw_only=True)
class Restarted(Cause):
    """Its ranks were started again."""

    attempts: Attempts

    def __str__(self) -> str:
        ways = "; ".join(self.attempts.sentences())
        return f"restarted {times(self.attempts.count - 1)}: {ways}"


@dataclass(frozen=True, kw_only=True)
class LeftEarly(Cause):
    """Ranks have left without Python's own work at the end."""

    ranks: tuple[int, ...]

    def __str__(self) -> str:
        whose = "its" if len(self.ranks) == 1 else "their"
        return (
            f"{ranks(self.ranks)} left before the end of {whose} program, by os._exit "
            "or for another program, so Python's own work at the end was not done"
        )


@dataclass(frozen=True, kw_only=True)
class KeptGroup(Cause):
    """Ranks have not left their process group."""

    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{ranks(self.ranks)} ended without dist.destroy_process_group()"


@dataclass(frozen=True, kw_only=True)
class NotJoined(Cause):
    """No rank has joined a process group."""

    copies: int

    def __str__(self) -> str:
        return (
            f"no rank has joined a process group: {self.copies} copies of the program "
            "have run side by side, and none knew of the others"
        )
