"""What the launcher returns, a `Run`, and what it raises instead."""

from dataclasses import dataclass, field
from pathlib import Path

from whichrank.explain.failure import Failure
from whichrank.record.calls import Call
from whichrank.record.lives import Life
from whichrank.record.plan import Event


@dataclass(frozen=True)
class Run:
    """What a run printed, reported and ended with. Each list is indexed by rank."""

    command: str
    """The plain command that a terminal would take."""
    lines: list[list[str]]
    """stdout without the facts."""
    facts: list[dict]
    """The JSON objects that a rank printed, merged into one."""
    warnings: list[list[str]]
    """stderr without noise and tracebacks."""
    exit_codes: list[int | None]
    """Negative for a signal, None for a rank that did not end by itself."""
    seconds: float
    failure: Failure | None = field(repr=False)
    calls: list[list[Call]] = field(default_factory=list, repr=False)
    """What each rank has called of the communication library, oldest first."""
    notes: list[str] = field(default_factory=list)
    """What the launcher noticed although it does not make the run a failure."""
    log_folder: Path | None = None
    """Where the output is written while the run goes on; None once it has ended."""
    code: int | None = None
    """The exit code of the command itself; None while it runs."""
    nodes: list[int | None] = field(default_factory=list)
    """The node of each rank in the last attempt; None if it was not started."""
    lives: list[Life] = field(default_factory=list, repr=False)
    """Who was alive when, in the order of their starts: each rank of each attempt."""
    events: list[Event] = field(default_factory=list, repr=False)
    """What happened to the nodes, in seconds since the run began."""
    played: str = ""
    """How several nodes were played on this machine, if they were."""
    typed: list[str] = field(default_factory=list, repr=False)
    """What one would type on each of the machines."""
    state: str = ""
    """What is done for it before its program starts, while that goes on."""

    def __getitem__(self, name: str) -> list:
        """Return the fact `name` by rank; KeyError says who did not report it."""
        missing = [rank for rank, facts in enumerate(self.facts) if name not in facts]
        if missing or not self.facts:
            known = sorted({name for facts in self.facts for name in facts})
            raise KeyError(f"ranks {missing} reported no {name!r}; reported: {known}")
        return [facts[name] for facts in self.facts]

    def __repr__(self) -> str:
        end = f"failed: {self.failure.cause}" if self.failure else "ok"
        return f"<Run, {len(self.lines)} ranks, {end}>"


class RunFailed(Exception):
    """A run failed, or succeeded although it was expected to fail; see `.run`."""

    def __init__(self, message: str, run: Run | None):
        super().__init__(message)
        self.run = run
        self.help = ""
        """What helps the reader of a notebook."""

    @classmethod
    def of(cls, run: Run) -> "RunFailed":
        """Return what is raised of a run that failed, or should have."""
        return cls(_told(run), run)

    def _render_traceback_(self) -> list[str]:
        """Show the cause in a notebook, not the launcher's own frames."""
        return [f"RunFailed: {_cause(self)}", *filter(None, [self.help])]


def refused(why: str) -> RunFailed:
    """Return what is raised of a command that is not run, with the reason."""
    return RunFailed(f"the launcher: {why}", None)


class RunInterrupted(KeyboardInterrupt):
    """The stop button ended a run; `.run` tells where each rank stood."""

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run

    @classmethod
    def of(cls, run: Run) -> "RunInterrupted":
        """Return what is raised of a run that the stop button has ended."""
        return cls(_told(run), run)

    def _render_traceback_(self) -> list[str]:
        return [f"RunInterrupted: {_cause(self)}"]


def _told(run: Run) -> str:
    """Return what a run failed of, and its command."""
    told = "expected the run to fail, but it succeeded"
    return f"{run.failure.report() if run.failure else told}\n\n$ {run.command}"


def _cause(error: RunFailed | RunInterrupted) -> str:
    """Return its message without the command, which the cell shows above it."""
    command = f"\n\n$ {error.run.command}" if error.run else ""
    return str(error).removesuffix(command)
