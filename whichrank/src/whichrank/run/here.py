"""Runs on this machine: a torchrun, or a program that plain python runs."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from whichrank.record import names
from whichrank.record.files import read
from whichrank.record.logs import ProgramLog
from whichrank.record.plan import Meets, Plan
from whichrank.record.words import signal_name
from whichrank.run import probe
from whichrank.run.channels import HOME, PYTHON_EXEC
from whichrank.run.command import AGENT, Command
from whichrank.run.guarded import Guarded
from whichrank.run.place import Place
from whichrank.run.starter import Starter, Tell, plain, write_python
from whichrank.run.watchdog import Pulse

RANK = Path(__file__).with_name("rank.py")
# The kernel's own settings, which would change how a program prints or draws.
COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR")
DROPPED = ("MPLBACKEND", "PYTHONUNBUFFERED", *COLORS)


def environment() -> dict[str, str]:
    """Return the environment in which every run begins."""
    env = {name: value for name, value in os.environ.items() if name not in DROPPED}
    env |= {"TERM": "dumb", "PYTHONFAULTHANDLER": "1"}
    env.setdefault("OMP_NUM_THREADS", "1")  # torchrun does so too, and prints a banner
    return env


class Here(Place):
    """A run of torchrun.

    Args:
        words: torchrun's options, and the program.
        starter: how its processes are started.
        meets: how it finds the others, if it is one node of several.
    """

    started = "torchrun"
    """What the guard starts, as a key of `STOPPED`; "" if it is the program itself."""

    def __init__(
        self, words: Sequence[str], starter: Starter, meets: Meets | None = None
    ):
        super().__init__()
        self.words, self.starter = words, starter
        self.plan = asdict(Plan([meets])) if meets else {}
        self.env = environment()
        self.python: str | None = None
        """What is run instead of Python, in a warm start."""

    def wait(self, tell: Tell) -> None:
        """Wait for the fork server's imports, once there is room for our files."""
        assert self.folder
        self.python = self.starter.python(self.env, tell)
        if trouble := self.starter.new_trouble():
            self.notes.append(f"not a warm start: {trouble}")

    def start(self) -> Guarded:
        """Start it under a guard."""
        # What torchrun starts its workers with: a documented hook.
        self.env[PYTHON_EXEC] = self.python or write_python(self.folder, "-")
        command = self.command([self.python or plain()])
        return Guarded(command, self.mark, self.folder, self.env)

    def command(self, python: list[str]) -> list[str]:
        """Return what the guard shall start, with these words for a Python."""
        if self.plan:
            (self.folder / names.PLAN).write_text(json.dumps(self.plan))
        return [*python, *AGENT, "--log-dir", str(self.folder), *self.words]

    def see(self) -> dict[str, Pulse]:
        """See torchrun's ranks."""
        return probe.see_ranks(self.folder)

    def look(self) -> None:
        """Look at torchrun's ranks."""
        probe.look_at_ranks(self.folder)

    def ended_by(self, code: int) -> Sequence[str]:
        """Tell of the fork server, and of what the guard has started."""
        if self.python and (by := self.starter.ended_by(self.python)):
            return "warm", by
        return (self.started, signal_name(-code)) if code < 0 and self.started else ()


def choose_here(command: Command, starter: Starter) -> Place:
    """Run any command on this machine."""
    command = command.alone()
    meets = command.meets() if command.nodes[1] > 1 else None
    here = Here(command.words, starter, meets)
    here.is_alone = True
    here.env |= command.own_store
    return here


class PlainPython(Here):
    """A run of plain python: one program, and whatever it starts.

    Args:
        words: the program, and its arguments.
        starter: as of `Here`.
    """

    log = ProgramLog
    started = ""  # how the program ended is its own failure

    def command(self, python: list[str]) -> list[str]:
        """Return the program, started by rank.py or as a fork."""
        self.env[HOME] = str(self.folder)
        how = [] if self.python else ["-u", str(RANK)]
        return [*python, *how, *self.words]

    def see(self) -> dict[str, Pulse]:
        """See the program, and what it has started."""
        pid = read(self.folder / names.PID)
        return probe.see_program(int(pid)) if pid else {}

    def look(self) -> None:
        """Look at nothing: its end is told in its own words."""
