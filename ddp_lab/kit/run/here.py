"""Runs on this machine: a torchrun, or a program that plain python runs."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ddp_lab.kit.record import names
from ddp_lab.kit.record.files import read
from ddp_lab.kit.record.logs import ProgramLog
from ddp_lab.kit.record.words import signal_name
from ddp_lab.kit.run import probe
from ddp_lab.kit.run.guarded import Guarded
from ddp_lab.kit.run.options import AGENT
from ddp_lab.kit.run.place import Place
from ddp_lab.kit.run.rank import HOME
from ddp_lab.kit.run.warm import WARM, Tell, Warm, plain, write_python
from ddp_lab.kit.run.watchdog import Pulse

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


def warm_python() -> str:
    """Return a Python that has imported torch already; our own if there is none."""
    return WARM.python(environment()) or sys.executable


class Here(Place):
    """A run of torchrun.

    Args:
        words: torchrun's options, and the program.
        cold: whether every process shall import torch anew.
        server: the fork server of a warm start, if not this process's own.
        meets: how it finds the others, if it is one node of several.
    """

    starter = "torchrun"

    def __init__(
        self,
        words: Sequence[str],
        *,
        cold: bool = False,
        server: Warm | None = None,
        meets: dict | None = None,
    ):
        super().__init__()
        self.words, self.cold, self.server = words, cold, server or WARM
        self.plan: dict = {"meets": [meets]} if meets else {}
        self.env = environment()
        self.python: str | None = None
        """What is run instead of Python, in a warm start."""

    def wait(self, tell: Tell) -> None:
        """Wait for the fork server's imports, once there is room for our files."""
        assert self.folder
        if self.cold:
            return
        self.python = self.server.python(self.env, tell)
        if trouble := self.server.new_trouble():
            self.notes.append(f"not a warm start: {trouble}")

    def start(self) -> Guarded:
        """Start it under a guard."""
        # What torchrun starts its workers with: a documented hook.
        self.env["PYTHON_EXEC"] = self.python or write_python(self.folder, "-")
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
        if self.python and (by := self.server.ended_by(self.python)):
            return "warm", by
        return (self.starter, signal_name(-code)) if code < 0 and self.starter else ()


class PlainPython(Here):
    """A run of plain python: one program, and whatever it starts.

    Args:
        words: the program, and its arguments.
        cold: as of `Here`.
    """

    log = ProgramLog
    starter = ""  # the program itself: how it ended is its own failure

    def command(self, python: list[str]) -> list[str]:
        """Return the program, under rank.py."""
        self.env[HOME] = str(self.folder)
        how = [] if self.python else ["-u", str(RANK)]
        return [*python, *how, *self.words]

    def see(self) -> dict[str, Pulse]:
        """See the program, and what it has started."""
        pid = read(self.folder / names.PID)
        return probe.see_program(int(pid)) if pid else {}

    def look(self) -> None:
        """Look at nothing: its end is told in its own words."""
