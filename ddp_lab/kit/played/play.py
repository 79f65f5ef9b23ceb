"""The door to the machine room: runs on nodes that this machine plays."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import whichrank
from ddp_lab.kit.played import events as happens
from ddp_lab.kit.played import plan
from whichrank import NO_PYTHON, Command, Here, Starter, names, refused

ROOM = Path(__file__).with_name("room.py")
WHICHRANK = Path(whichrank.__file__).parents[1]


@dataclass(frozen=True)
class Playing:
    """Takes each command that is meant for several nodes, and plays them here."""

    events: Sequence[str] = ()
    """What happens to the nodes, and when (events.py)."""
    rate: str = ""
    """That of each node's link, say "100mbit"."""

    def __call__(self, command: Command, starter: Starter) -> "Played | None":
        """Return the place of a run; None if its command is for one node."""
        if not command.is_for_all:
            return None
        _, count = command.nodes
        if count > plan.MOST_NODES:
            most = f"one machine plays up to {plan.MOST_NODES} nodes, not {count}"
            raise refused(most)
        try:
            awaited = happens.parse_all(self.events, count)
            bits = happens.rate(self.rate) if self.rate else 0.0
        except ValueError as error:
            raise refused(str(error)) from None
        if command.has(NO_PYTHON):
            why = "on several nodes the ranks are Python programs, without --no-python"
            raise refused(why)
        return Played(plan.make(command, awaited, bits), starter)


class Played(Here):
    """A run on nodes that this machine plays (room.py).

    Args:
        made: what each of them runs.
        starter: as of `Here`.
    """

    started = "nodes"

    def __init__(self, made: plan.RoomPlan, starter: Starter):
        super().__init__([], starter)
        self.made = made

    def command(self, python: list[str]) -> list[str]:
        """Leave the plan; return the command that carries it out."""
        whole = asdict(replace(self.made, python=python))
        (self.folder / names.PLAN).write_text(json.dumps(whole))
        return [sys.executable, "-IS", str(ROOM), str(self.folder), str(WHICHRANK)]
