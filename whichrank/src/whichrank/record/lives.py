"""Which rank lived where, and when: what proxy.py leaves in where.json and exit.json.

torchrun may start its ranks several times, on several nodes. Each time is an attempt,
and one rank of one attempt is a life.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from whichrank.record import names
from whichrank.record.files import entries, read_json
from whichrank.record.plan import Event, read_events
from whichrank.record.words import signal_name

NODE = re.compile(r"node_(\d+)")


@dataclass(frozen=True)
class Life:
    """One rank of one attempt. Times are seconds since the run began."""

    node: int
    """Which machine, counted from 0; our number, and not torchrun's."""
    local_rank: int
    rank: int
    """The global rank, which another attempt may give to another process."""
    attempt: int
    """Counts the times that ranks were started, from 0, over all nodes."""
    world_size: int
    start: float
    end: float | None
    """None if it was still alive when the run was last looked at."""
    how: str
    """How it ended: "done", "exit code 1", "SIGKILL", "asked to end", or "" if it has
    not."""
    folder: Path = field(repr=False, compare=False)
    """Its log folder, while the run is there."""

    @property
    def place(self) -> str:
        """Return, say, `node 1, local 0`."""
        return f"node {self.node}, local {self.local_rank}"


def node_folders(folder: Path) -> list[Path]:
    """Return the log folders of the agents, by node, of a run on several nodes."""
    matches = [each for name in entries(folder) if (each := NODE.fullmatch(name))]
    return [folder / each[0] for each in sorted(matches, key=lambda each: int(each[1]))]


def lives(folder: Path, since: float = 0.0) -> list[Life]:
    """Return the lives of a run with this log folder, in the order of their starts.

    Args:
        folder: that of the run.
        since: when the run began, in seconds since the epoch.
    """
    nodes = node_folders(folder)
    paths = [life for node in nodes for life in _below(node / names.LIVES)]
    if not nodes:
        attempts = [path for run in _below(folder) for path in _below(run)]
        paths = [rank for attempt in attempts for rank in _below(attempt)]
    all_lives = [life for path in paths if (life := _read(path, since))]
    return _numbered(sorted(all_lives, key=lambda life: life.start))


def _below(folder: Path) -> Iterator[Path]:
    for name in entries(folder):
        yield folder / name


def _read(folder: Path, since: float) -> Life | None:
    where = read_json(folder / names.WHERE)
    if not where:
        return None
    exit = read_json(folder / names.EXIT)
    ended = exit and exit["code"] is not None
    return Life(
        node=where["node"],
        local_rank=where["local_rank"],
        rank=where["rank"],
        attempt=0,
        world_size=where["world_size"],
        start=where["start"] - since,
        end=exit["time"] - since if ended else None,
        how=_how(exit["code"], exit["asked"]) if ended else "",
        folder=folder,
    )


def _how(code: int, asked: float | bool) -> str:
    if asked:
        return "asked to end"
    if code < 0:
        return signal_name(-code) or f"signal {-code}"
    return f"exit code {code}" if code else "done"


def _numbered(all_lives: list[Life]) -> list[Life]:
    """Return the lives with the number of their attempt.

    torchrun numbers the restarts of each node by themselves, and those by which a node
    comes or goes not at all. What no attempt has twice is a rank, or a place.
    """
    numbered: list[Life] = []
    taken: set[object] = set()
    attempt = size = 0
    for life in all_lives:
        keys = {life.rank, life.place}
        if numbered and (taken & keys or life.world_size != size):
            attempt, taken = attempt + 1, set()
        taken, size = taken | keys, life.world_size
        numbered.append(replace(life, attempt=attempt))
    return numbered


@dataclass(frozen=True)
class Change:
    """How the nodes of one attempt differ from those of the next."""

    lost: tuple[int, ...] = ()
    """The nodes that have gone."""
    come: tuple[int, ...] = ()
    """Those that are new."""
    ranks: frozenset[int] = frozenset()
    """Those on nodes that have gone."""


def changes(folder: Path) -> list[Change]:
    """Return for each attempt but the last which nodes came or went then."""
    happened = read_events(folder)
    return [
        _change(this, after, happened)
        for this, after in pairwise(by_attempt(lives(folder)))
    ]


def _change(this: list[Life], after: list[Life], happened: list[Event]) -> Change:
    began, end = (min(life.start for life in each) for each in (this, after))
    here, then = ({life.node for life in each} for each in (this, after))
    lost = {  # one may be back already
        event.node
        for event in happened
        if event.verb in ("kill", "stop") and began < event.time < end
    } & here
    lost |= here - then
    ranks = frozenset(life.rank for life in this if life.node in lost)
    return Change(tuple(sorted(lost)), tuple(sorted(then - here)), ranks)


def nodes_by_rank(all_lives: list[Life]) -> list[int | None]:
    """Return the node of each rank in the last attempt, None where none was started."""
    last = last_attempt(all_lives)
    size = max((life.world_size for life in last), default=0)
    there = {life.rank: life.node for life in last}
    return [there.get(rank) for rank in range(size)]


def by_attempt(all_lives: list[Life]) -> list[list[Life]]:
    """Return the lives of each attempt, by rank."""
    attempts: list[list[Life]] = []
    for life in all_lives:
        if life.attempt == len(attempts):
            attempts.append([])
        attempts[-1].append(life)
    return [sorted(each, key=lambda life: life.rank) for each in attempts]


def last_attempt(all_lives: list[Life]) -> list[Life]:
    """Return the lives of the last attempt, by rank."""
    return next(iter(by_attempt(all_lives)[-1:]), [])
