"""Where a run is: what starts its processes there, looks at them and ends them."""

import shutil
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from whichrank.record.logs import RunLog, TorchrunLog
from whichrank.run.command import Command
from whichrank.run.guarded import Guarded
from whichrank.run.result import RunFailed
from whichrank.run.starter import Starter, Tell
from whichrank.run.watchdog import Pulse

PREFIX = "whichrank-run-"  # of the folders' names


class Place(ABC):
    """Where one run is: this machine (here.py), or the nodes of a SLURM job (step.py).

    Whoever has another place writes a subclass, and a `Choose` that returns it.

    `wait`, `start`, `see` and `look`, and `end` are called in this order, and `close`
    whatever happens. What comes back lies in the folder: see launch.py.
    """

    log: type[RunLog] = TorchrunLog
    """How that is read."""
    home: Path | None = None
    """Where the folder is made; where temporary files are, if it is not given."""
    is_alone: bool = False
    """Whether the run is on this machine alone, as `--standalone` says."""
    env: dict[str, str]
    """The environment in which it begins."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        """What each process of the run carries (guard.py)."""
        self._folder: Path | None = None
        self.notes: list[str] = []
        """What a reader is told of it although it makes no run a failure."""

    @property
    def folder(self) -> Path:
        """Return the run's folder, which is made when it is first needed.

        If we are killed, the guard removes it.
        """
        if self._folder is None:
            home = self.home or Path(tempfile.gettempdir())
            try:
                home.mkdir(parents=True, exist_ok=True)
                self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
            except OSError as error:
                why = f"the launcher cannot keep its logs in {home}: {error.strerror}"
                raise RunFailed(why, None) from None
        return self._folder

    def wait(self, tell: Tell) -> None:  # noqa: B027  (nothing, where all is there)
        """Wait for what the run needs: machines, or imports."""

    @abstractmethod
    def start(self) -> Guarded:
        """Start the run."""

    @abstractmethod
    def see(self) -> dict[str, Pulse]:
        """Return what a watchdog has to know of the ranks, by names that stay."""

    @abstractmethod
    def look(self) -> None:
        """Leave in the folder where the ranks stand; see probe.py."""

    def end(self, stopped: bool) -> None:  # noqa: B027  (the guard has ended all)
        """End what is out of the guard's reach.

        Args:
            stopped: whether the run has not ended by itself.
        """

    @abstractmethod
    def ended_by(self, code: int) -> Sequence[str]:
        """Return what from outside has ended the run: a key of `STOPPED`, and by what.

        It is empty if nothing has.

        Args:
            code: the exit code of what was started.
        """

    def close(self) -> None:
        """Remove the folder."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


Choose = Callable[[Command, Starter], Place | None]
"""Returns where a command is run, without its options on logs; None if not there."""
