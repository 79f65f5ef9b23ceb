"""Why the nodes of a run do not come together, or one of them is lost."""

import math
import signal
from collections.abc import Mapping
from dataclasses import replace

from whichrank.explain.cause import Cause
from whichrank.explain.causes.node import (
    CutOff,
    NodeFailed,
    NodeLost,
    NodesMissing,
    NodesNotMet,
    OwnLoopback,
)
from whichrank.explain.ends import HEADSTART
from whichrank.explain.symptoms import Symptom, in_words
from whichrank.record.agents import Agent
from whichrank.record.files import shorten
from whichrank.record.heard import Heard
from whichrank.record.stacks import last_error
from whichrank.record.torch_words import ECHOES

MENDING = 60.0  # seconds that connections may need when a cable is mended


def cut_off(agents: list[Agent], first: float) -> Cause | None:
    """Return which node was cut off when, or shortly before, something was noticed.

    Args:
        agents: of all nodes.
        first: when, in seconds since the epoch.
    """
    for agent in agents:
        if agent.cut and agent.cut[0] <= first <= agent.cut[1] + MENDING:
            return CutOff(symptom=Symptom.NETWORK, node=agent.node)
    return None


def gone(agents: list[Agent]) -> tuple[NodeLost, float] | None:
    """Return which node was lost in the last attempt, the first of several, and when.

    That is in seconds since the epoch. What no event has killed may be seen late.
    """
    began = min((agent.started for agent in agents if agent.started), default=0.0)
    lost = [agent for agent in agents if agent.lost and agent.end.time >= began]
    if not lost:
        return None
    first = min(lost, key=lambda agent: agent.end.time)
    failed = [a.end for a in agents if a.end.code and a.end.by_itself and not a.lost]
    earliest = min((end.time for end in failed), default=math.inf)
    if first.end.code == -signal.SIGTERM and earliest < first.end.time:
        return None  # srun, say, ends the rest of a run whose first node has failed
    cause = NodeLost(
        symptom=Symptom.KILLED,
        node=first.node,
        ranks=first.ranks,
        code=None if first.stopped else first.end.code,
        event=first.end.event,
        had_store=_at(first).startswith(f"node{first.node}:"),
    )
    return cause, first.end.time - (0 if first.killed else HEADSTART)


def never_met(agents: list[Agent]) -> Cause | None:
    """Return why no rank was started on any node, as far as the commands tell."""
    return _not_come(agents) or _alone(agents) or failed(agents) or _not_found(agents)


def own_loopback(agents: list[Agent], heard: Mapping[int, Heard]) -> Cause | None:
    """Return which node offers an address that each machine takes for its own.

    Args:
        agents: of all nodes.
        heard: what each rank has said that has failed.
    """
    at = {rank: each.loopback for rank, each in heard.items() if each.loopback}
    if not at or not all(agent.has_network for agent in agents):
        return None
    rank, address = min(at.items())
    others = [agent.node for agent in agents if not {*agent.ranks} & {*at}]
    one = others[0] if len(others) == 1 else None
    symptom = Symptom.NETWORK
    return OwnLoopback(symptom=symptom, node=one, address=address, ranks=(rank,))


def failed(agents: list[Agent]) -> Cause | None:
    """Return which torchrun was the first to fail by itself, and what it said."""
    errors = [
        (agent.end.time, agent.node, error)
        for agent in agents
        if agent.end.code and agent.end.by_itself and (error := _error(agent))
    ]
    if not errors:
        return None
    _, node, error = min(errors)
    symptom = in_words(error) or Symptom.RENDEZVOUS
    return NodeFailed(symptom=symptom, node=node, error=shorten(error, 300))


def _error(agent: Agent) -> str:
    """Return what torchrun failed with: an exception, or else its last line."""
    lines = [line.strip() for line in agent.stderr.splitlines() if line.strip()]
    error = last_error(agent.stderr) or (lines or [""])[-1]
    return "" if ECHOES.search(error) else error


def _not_come(agents: list[Agent]) -> Cause | None:
    """Some node was never started."""
    away = tuple(agent.node for agent in agents if not agent.came)
    there = [agent for agent in agents if agent.came]
    if not away or not there:
        return None
    came = tuple(agent.node for agent in there)
    symptom = Symptom.RENDEZVOUS
    return NodesMissing(symptom=symptom, at=_at(there[0]), away=away, there=came)


def _alone(agents: list[Agent]) -> Cause | None:
    """The command was that of one node, and no other has been seen."""
    meets = agents[0].meets if len(agents) == 1 else None
    missing = int(meets.nnodes.partition(":")[0]) - 1 if meets else 0
    if not meets or missing < 1:
        return None
    cause = NodesMissing(symptom=Symptom.RENDEZVOUS, at=meets.at)
    if meets.backend == "static" and meets.rank != "0":
        return cause
    return replace(cause, wanted=meets.nnodes, missing=missing)


def _not_found(agents: list[Agent]) -> Cause | None:
    """All have come and were told the same, and still no rank was started."""
    if len(agents) < 2 or not any(agent.came for agent in agents):
        return None
    return NodesNotMet(symptom=Symptom.NETWORK, at=_at(agents[0]))


def _at(agent: Agent) -> str:
    return agent.meets.at if agent.meets else ""
