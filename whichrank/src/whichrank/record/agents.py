"""torchrun on each node of a run: how it was to meet the others, and how it ended."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from whichrank.record import names
from whichrank.record.files import read
from whichrank.record.lives import last_attempt, lives, node_folders
from whichrank.record.plan import (
    AgentEnd,
    Event,
    Meets,
    read_end,
    read_events,
    read_plan,
    read_played,
)
from whichrank.record.torch_words import signal_obeyed


@dataclass(frozen=True)
class Agent:
    """torchrun on one node."""

    node: int
    meets: Meets | None
    """How it is to find the others, if that was planned."""
    came: bool = True
    """Whether it was started at all."""
    end: AgentEnd = AgentEnd()
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
    def killed(self) -> bool:
        """Whether an event has killed its node."""
        return self.end.event is not None and self.end.event.verb == "kill"

    @property
    def stopped(self) -> bool:
        """Whether an event has asked it to end."""
        return self.end.event is not None and self.end.event.verb == "stop"

    @property
    def lost(self) -> bool:
        """Whether it has ended although it had neither done its work nor failed."""
        code, asked = self.end.code, not (self.end.by_itself or self.killed)
        signaled = code is not None and code < 0 and not asked
        return signaled or self.stopped and bool(code)


def read_all(folder: Path) -> list[Agent]:
    """Return the agents of a run with this log folder, if it has several nodes."""
    plan, shared = read_plan(folder), read_played(folder).shared
    last = last_attempt(lives(folder))
    happened = read_events(folder)
    homes = node_folders(folder) or ([folder] if len(plan.meets) == 1 else [])
    agents = []
    for node, home in enumerate(homes):
        end, stderr = read_end(home), read(home / names.ERR)
        if end.code and end.by_itself and (obeyed := signal_obeyed(stderr)):
            end = replace(end, code=-obeyed)
        here = [life for life in last if life.node == node]
        agent = Agent(
            node,
            plan.meets[node] if plan.meets else None,
            came=(home / names.ERR).exists(),
            end=end,
            stderr=stderr,
            ranks=tuple(life.rank for life in here),
            started=min((life.start for life in here), default=0.0),
            has_network=not shared,
            cut=_cut(node, happened),
        )
        agents.append(agent)
    return agents


def _cut(node: int, happened: list[Event]) -> tuple[float, float] | None:
    """Return from when to when a node's cable was pulled, the last time."""
    begin, end = 0.0, math.inf
    for event in happened:
        if event.node == node and event.verb == "cut":
            begin, end = event.time, math.inf
        elif event.node == node and event.verb == "mend":
            end = event.time
    return (begin, end) if begin else None
