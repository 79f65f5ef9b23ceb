"""Why the nodes of a run do not come together, or one of them is lost."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ddp_lab.kit.explain.attempts import OWN_STORE
from ddp_lab.kit.explain.symptoms import Symptom, find
from ddp_lab.kit.record.agents import Agent, misled
from ddp_lab.kit.record.files import shorten
from ddp_lab.kit.record.stacks import last_error
from ddp_lab.kit.record.words import conjugate, ended_by, listed

# Where gloo has looked for another rank.
OWN = re.compile(r"remote=\[(127\.[\d.]+|::1)\]")
# What torchrun says when another node has failed, or its own ranks.
ECHOES = re.compile(r"ChildFailedError|SignalException|RendezvousClosedError")
# What keeps nodes apart; see `agents.misled`.
MISLED = {
    "rank": "--node-rank has to count from 0 to --nnodes - 1, but it is {}",
    "itself": "each node looks for the others at {}, where it finds only itself",
    "host": "--node-rank 0 has to be where all meet, but they meet at {}",
}
SLOW_ANSWER = 0.5  # seconds: nodes that wait longer for an answer meet late
CARRIES = 1000.0  # bytes a second: a link that carries more is not still
MENDING = 60.0  # seconds that connections may need when a cable is mended


@dataclass(frozen=True)
class Trouble:
    """What has gone wrong with a node."""

    cause: str
    node: int | None
    """The one to blame, if it is one."""
    symptom: Symptom | None = None
    means: str = ""
    time: float = 0.0
    """When it happened, in seconds since the epoch."""
    exact: bool = False
    """Whether that is known, and not only when it was noticed."""
    ranks: tuple[int, ...] = ()
    """Those that it explains."""


def cut_off(agents: list[Agent], first: float) -> Trouble | None:
    """Return which node was cut off when, or shortly before, something was noticed.

    Args:
        agents: of all nodes.
        first: when, in seconds since the epoch.
    """
    for agent in agents:
        if agent.cut and agent.cut[0] <= first <= agent.cut[1] + MENDING:
            cause = "is cut off: its cable is pulled"
            means = f"by the event `cut node {agent.node}`"
            return Trouble(cause, agent.node, Symptom.NETWORK, means)
    return None


def slow(agents: list[Agent]) -> Trouble | None:
    """Return whose link is slow, if a run was ended while its links still carried."""
    busy = [agent for agent in agents if agent.carries > CARRIES]
    if len(busy) < 2:
        return None
    slowed = [agent.node for agent in agents if agent.slow]
    node = slowed[0] if len(slowed) == 1 else None
    most = max(agent.carries for agent in busy) / 1000
    cause = "has a slow link" if slowed else "the network is slow"
    means = f"nothing stood still: {most:,.0f} KB crossed each link in a second"
    return Trouble(cause, node, Symptom.NETWORK, means)


def gone(agents: list[Agent]) -> Trouble | None:
    """Return which node was lost in the last attempt, or the first of several."""
    began = min((agent.started for agent in agents if agent.started), default=0.0)
    lost = [agent for agent in agents if agent.lost and agent.time >= began]
    if not lost:
        return None
    first = min(lost, key=lambda agent: agent.time)
    had = f", with {_ranks(first.ranks)}" if first.ranks else ""
    how = "was asked to end" if first.stopped else ended_by(first.code or 0)
    cause = f"has gone{had}: its torchrun {how}"
    means = [f"by the event `{first.done}`"] if first.done else []
    if first.meets.get("at", "").startswith(f"node{first.node}:"):
        means.append("the others have lost the rendezvous with it")
    trouble = Trouble(cause, first.node, Symptom.KILLED, "; ".join(means), first.time)
    exact = first.done.startswith("kill")
    return replace(trouble, ranks=first.ranks, exact=exact)


def never_met(agents: list[Agent]) -> Trouble | None:
    """Return why no rank was started on any node, as far as the commands tell."""
    return (
        _differ(agents)
        or _not_come(agents)
        or _alone(agents)
        or failed(agents)
        or _not_found(agents)
    )


def never_again(agents: list[Agent]) -> Trouble | None:
    """Return why no rank is started again, although all nodes are there to do so.

    torch 2.15 says only in the first round where the ranks of all rounds find the store
    that they share, so that a node which joins later waits to hear it.
    """
    there = [agent for agent in agents if agent.came and agent.code is None]
    new = [agent.node for agent in there if not agent.ranks]
    if len(there) < 2:
        return None
    cause = f"the nodes do not meet again at {there[0].meets.get('at')}"
    if new:
        cause += f", where {_nodes(new)} {conjugate('have', new)} come"
    ranks = tuple(rank for agent in agents for rank in agent.ranks)
    return Trouble(cause, None, Symptom.RENDEZVOUS, OWN_STORE, ranks=ranks)


def odd(agents: list[Agent]) -> list[str]:
    """Return how the nodes of a run that succeeds were not started alike."""
    differ = _differ(agents) if agents else None
    found = [differ.cause if differ else "", differing_programs(agents)]
    return [each for each in found if each]


def own_loopback(agents: list[Agent], words: Mapping[int, str]) -> Trouble | None:
    """Return which node offers an address that each machine takes for its own.

    Args:
        agents: of all nodes.
        words: what each rank has said that has failed.
    """
    at = {rank: found[1] for rank, said in words.items() if (found := OWN.search(said))}
    if not at or not all(agent.has_network for agent in agents):
        return None
    rank, address = min(at.items())
    others = [agent.node for agent in agents if not {*agent.ranks} & {*at}]
    node = others[0] if len(others) == 1 else None
    who = "" if node is not None else "a node "
    cause = f"{who}offers {address}, where rank {rank} finds only its own machine"
    means = "look at its GLOO_SOCKET_IFNAME, and at its host name in its /etc/hosts"
    return Trouble(cause, node, Symptom.NETWORK, means)


def differing_programs(agents: list[Agent]) -> str:
    """Return which node runs another program than the others, in words; or ""."""
    programs = {a.node: " ".join(a.meets.get("program", [])) for a in agents}
    return _sides(programs, "{1} runs on {0}")


def failed(agents: list[Agent]) -> Trouble | None:
    """Return which torchrun was the first to fail by itself, and what it said."""
    found = [
        (agent.time, agent, error)
        for agent in agents
        if agent.code and not agent.done and (error := _error(agent))
    ]
    if not found:
        return None
    time, agent, error = min(found, key=lambda each: each[0])
    symptom = find(error) or Symptom.RENDEZVOUS
    means = f"that is: {symptom.means}"
    return Trouble(shorten(error, 300), agent.node, symptom, means, time)


def _error(agent: Agent) -> str:
    """Return what torchrun failed with: an exception, or else its last line."""
    lines = [line.strip() for line in agent.said.splitlines() if line.strip()]
    error = last_error(agent.said) or (lines or [""])[-1]
    return "" if ECHOES.search(error) else error


def _differ(agents: list[Agent]) -> Trouble | None:
    """The nodes were told to meet in different ways."""
    for key, what in (
        ("nnodes", "--nnodes {1} on {0}"),
        ("id", "--rdzv-id {1} on {0}"),
        ("backend", "a {1} rendezvous on {0}"),
    ):
        told = {agent.node: agent.meets.get(key, "") for agent in agents}
        if sides := _sides(told, what):
            cause = f"the nodes were not started alike: {sides}"
            return Trouble(cause, _odd(told), Symptom.RENDEZVOUS)
    ranks = [agent.meets.get("rank") for agent in agents]
    if agents[0].meets.get("backend") == "static" and len({*ranks}) < len(ranks):
        cause = "two nodes have the same --node-rank: "
        told = {agent.node: agent.meets.get("rank", "") for agent in agents}
        cause += ", ".join(f"{rank} on node {node}" for node, rank in told.items())
        return Trouble(cause, None, Symptom.RENDEZVOUS)
    told = {agent.node: agent.meets.get("at", "") for agent in agents}
    if sides := _sides(told, "at {1} on {0}"):
        cause = f"the nodes look for each other at different places: {sides}"
        return Trouble(cause, _odd(told), Symptom.RENDEZVOUS)
    if found := misled(agents):
        what, where = found
        sides = {"rank": "{} on {}", "host": "{}, and it is {}"}.get(what, "{}")
        words = (sides.format(said, _nodes(nodes)) for said, nodes in where.items())
        cause = MISLED[what].format(", ".join(words))
        return Trouble(cause, None, Symptom.RENDEZVOUS)
    return None


def _not_come(agents: list[Agent]) -> Trouble | None:
    """Some node was never started."""
    away = [agent.node for agent in agents if not agent.came]
    there = [agent for agent in agents if agent.came]
    if not away or not there:
        return None
    has = "has" if len(away) == 1 else "have"
    cause = f"{_nodes(away)} {has} not come, and {_nodes(a.node for a in there)} "
    cause += f"{'waits' if len(there) == 1 else 'wait'} at {there[0].meets.get('at')}"
    return Trouble(cause, None, Symptom.RENDEZVOUS)


def _alone(agents: list[Agent]) -> Trouble | None:
    """The command was that of one node, and no other has been seen."""
    if len(agents) != 1:
        return None
    meets = agents[0].meets
    missing = int(meets["nnodes"].partition(":")[0]) - 1
    if missing < 1:
        return None
    if meets["backend"] == "static" and meets["rank"] != "0":
        cause = f"the node with --node-rank 0 has not come: nobody is at {meets['at']}"
        return Trouble(cause, None, Symptom.RENDEZVOUS)
    who = "the second node has" if missing == 1 else f"the other {missing} nodes have"
    cause = f"{who} not come: this one waits at {meets['at']}, with --nnodes "
    return Trouble(cause + meets["nnodes"], None, Symptom.RENDEZVOUS)


def _not_found(agents: list[Agent]) -> Trouble | None:
    """All have come and were told the same, and still no rank was started."""
    if len(agents) < 2:
        return None
    cause = f"the nodes do not meet at {agents[0].meets.get('at')}, although they were "
    cause += "started alike"
    means = "look at what that name means on each of them, and at firewalls"
    if (answer := 2 * agents[0].delay) > SLOW_ANSWER:
        means = f"with this delay an answer takes {answer:g} seconds, and nodes that "
        means += "meet wait for many of them: allow more time"
    return Trouble(cause, None, Symptom.NETWORK, means)


def _sides(told: dict[int, str], words: str) -> str:
    """Return who was told what, if not all were told the same; else ""."""
    if len({*told.values()}) < 2:
        return ""
    sides = [
        words.format(_nodes(n for n in told if told[n] == what), what)
        for what in dict.fromkeys(told.values())
    ]
    return ", ".join(sides)


def _odd(told: dict[int, str]) -> int | None:
    """Return the node that was told another thing than all others, if it is one."""
    odd = [node for node in told if [*told.values()].count(told[node]) == 1]
    return odd[0] if len(odd) == 1 and len(told) > 2 else None


def _nodes(numbers: Iterable[int]) -> str:
    names = [str(number) for number in numbers]
    return f"node{'s' * (len(names) > 1)} {listed(names)}"


def _ranks(numbers: Iterable[int]) -> str:
    names = [str(number) for number in numbers]
    return f"rank{'s' * (len(names) > 1)} {listed(names)}"
