"""torchrun on each node of a run: how it was to meet the others, and how it ended."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.record import names
from whichrank.record.files import read, read_json
from whichrank.record.lives import events, last_attempt, lives, node_folders
from whichrank.record.torch_words import signal_obeyed


@dataclass(frozen=True)
class Agent:
    """torchrun on one node."""

    node: int
    meets: dict
    """How it is to find the others: `nnodes`, `rank`, `at` and `backend`, each as
    torchrun takes it; see run/command.py."""
    came: bool = True
    """Whether it was started at all."""
    code: int | None = None
    """Its exit code, negative for a signal; None if it has not ended."""
    time: float = 0.0
    """When it ended, in seconds since the epoch."""
    ended_by: str = ""
    """What was done to end it: an event, as `kill node 1`."""
    stderr: str = field(default="", repr=False)
    """What it has written itself."""
    ranks: tuple[int, ...] = ()
    """Those of the last attempt."""
    started: float = 0.0
    """When the first of them was, in seconds since the epoch."""
    has_network: bool = True
    """Whether it shares no address with another node."""
    cut: tuple[float, float] | None = None
    """From when to when its cable was pulled, the last time."""

    @property
    def stopped(self) -> bool:
        """Whether an event has asked it to end."""
        return self.ended_by.startswith("stop")

    @property
    def lost(self) -> bool:
        """Whether it has ended although it had neither done its work nor failed."""
        asked = self.ended_by and not self.ended_by.startswith("kill")
        killed = self.code is not None and self.code < 0 and not asked
        return killed or self.stopped and bool(self.code)


def read_all(folder: Path) -> list[Agent]:
    """Return the agents of a run with this log folder, if it has several nodes."""
    plan = read_json(folder / names.PLAN) or {}
    played = read_json(folder / names.PLAYED) or {}
    last = last_attempt(lives(folder))
    agents, happened = [], events(folder)
    alone = [folder] if len(plan.get("meets", [])) == 1 else []
    homes = node_folders(folder) or alone
    for node, home in enumerate(homes):
        end = read_json(home / names.EXIT) or {"code": None, "time": 0.0, "done": ""}
        stderr = read(home / names.ERR)
        if end["code"] and not end["done"] and (obeyed := signal_obeyed(stderr)):
            end["code"] = -obeyed
        meets = plan["meets"][node] if plan.get("meets") else {}
        here = [life for life in last if life.node == node]
        agent = Agent(
            node,
            meets,
            came=(home / names.ERR).exists(),
            code=end["code"],
            time=end["time"],
            ended_by=end["done"],
            stderr=stderr,
            ranks=tuple(life.rank for life in here),
            started=min((life.start for life in here), default=0.0),
            has_network=not played.get("shared"),
            cut=_cut(node, happened),
        )
        agents.append(agent)
    return agents


def _cut(node: int, happened: list[tuple[float, str]]) -> tuple[float, float] | None:
    """Return from when to when a node's cable was pulled, the last time."""
    begin, end = 0.0, math.inf
    for time, what in happened:
        if what == f"cut node {node}":
            begin, end = time, math.inf
        elif what == f"mend node {node}":
            end = time
    return (begin, end) if begin else None
