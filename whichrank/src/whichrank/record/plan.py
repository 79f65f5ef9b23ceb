"""Runs on several nodes: what was planned for them, what happened, how each ended.

Whoever starts torchrun on the nodes writes this: a step of SLURM, or a place of the
caller's own. In the run's folder are

    plan.json        a `Plan`; whoever writes it may add what only it reads
    played.json      a `Played`: how the nodes came about
    events.jsonl     an `Event` in each line, as it happened
    node_N/          the log folder of node N's torchrun; in it
      out, err       what torchrun itself says
      exit.json      an `AgentEnd`: how it ended; absent while it runs
      lives/LIFE/    what torchrun keeps of one rank of one attempt; see lives.py
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from whichrank.record import names
from whichrank.record.files import read, read_json

Verb = Literal["kill", "stop", "start", "cut", "mend"]


@dataclass(frozen=True)
class Event:
    """One thing that happens to a node."""

    verb: Verb
    """Its machine is killed; its torchrun is asked to stop, or started; its cable is
    cut, or mended."""
    node: int
    time: float = 0.0
    """In seconds since the epoch or, in a `Run`, since that began."""

    def __str__(self) -> str:
        return f"{self.verb} node {self.node}"


@dataclass(frozen=True)
class Meets:
    """How a node is to find the others, each as torchrun takes it."""

    nnodes: str
    rank: str
    """Of the node, to --node-rank."""
    at: str
    """Host and port."""
    backend: str


@dataclass(frozen=True)
class Planned:
    """An event that is still to come."""

    sentence: str
    """As the reader has written it."""
    event: Event


@dataclass(frozen=True)
class Plan:
    """What was planned for the nodes."""

    meets: list[Meets] = field(default_factory=list)
    """Of each node."""
    events: list[Planned] = field(default_factory=list)


@dataclass(frozen=True)
class Played:
    """How the nodes of a run came about."""

    how: str = ""
    """In words: by SLURM, or on one machine."""
    typed: list[str] = field(default_factory=list)
    """What one would type on each of them."""
    shared: bool = False
    """Whether they share one network, and so their addresses."""
    left_out: list[str] = field(default_factory=list)
    """What was asked for and cannot be had here, in words."""


@dataclass(frozen=True)
class AgentEnd:
    """How torchrun ended on a node."""

    code: int | None = None
    """Its exit code, negative for a signal."""
    time: float = 0.0
    """In seconds since the epoch."""
    event: Event | None = None
    """What was done to the node, to end it."""
    why: str = ""
    """Why else it was ended: another node has failed, say."""

    @property
    def by_itself(self) -> bool:
        """Whether nobody has ended it."""
        return self.event is None and not self.why

    def write(self, home: Path) -> None:
        """Leave it in the folder of the node."""
        names.write(home / names.EXIT, asdict(self))


def read_plan(folder: Path) -> Plan:
    """Return the plan of a run; an empty one if there is none."""
    found = read_json(folder / names.PLAN) or {}
    meets = [Meets(**each) for each in found.get("meets", [])]
    planned = [
        Planned(each["sentence"], Event(**each["event"]))
        for each in found.get("events", [])
    ]
    return Plan(meets, planned)


def read_played(folder: Path) -> Played:
    """Return how the nodes of a run came about."""
    return Played(**(read_json(folder / names.PLAYED) or {}))


def read_events(folder: Path, since: float = 0.0) -> list[Event]:
    """Return what has happened to the nodes.

    Args:
        folder: that of the run.
        since: from when the times of the events count, in seconds since the epoch.
    """
    lines = read(folder / names.EVENTS).splitlines()
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [Event(each["verb"], each["node"], each["time"] - since) for each in found]


def add_event(folder: Path, event: Event) -> None:
    """Note that something has happened."""
    with open(folder / names.EVENTS, "a") as file:
        file.write(json.dumps(asdict(event)) + "\n")


def read_end(home: Path) -> AgentEnd:
    """Return how torchrun ended on the node with this folder."""
    found = read_json(home / names.EXIT) or {}
    if event := found.get("event"):
        found["event"] = Event(**event)
    return AgentEnd(**found)
