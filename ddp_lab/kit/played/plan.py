"""From a torchrun command for several nodes to what each node of them runs.

A command that names no node and no address, such as `--nnodes 2 --nproc-per-node 2
program.py`, is meant for all its nodes. Here is what one types on each of them.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ddp_lab.kit.played import events
from ddp_lab.kit.played.events import Awaited
from whichrank import ENDPOINT, LOOPBACK, Command, Meets, Plan, names

MOST_NODES = 80  # that are played: their files come in one message (wiring.py)


@dataclass(frozen=True)
class RoomPlan(Plan):
    """What `room.py` has to do."""

    events: list[Awaited] = field(default_factory=list)  # type: ignore[assignment]
    typed: list[list[str]] = field(default_factory=list)
    """What one types on each node, after `torchrun`."""
    on_loopback: list[list[str]] = field(default_factory=list)
    """The same for nodes that share one address."""
    python: list[str] = field(default_factory=list)
    """What runs torchrun."""
    least: int = 1
    """With how many nodes the job can go on."""
    fixed: bool = True
    """Whether every node is needed: then the end of one is the end of all."""
    elsewhere: str = ""
    """Where the rendezvous is, if no node hosts it."""
    env: dict[str, str] = field(default_factory=dict)
    """What all nodes have in their environment."""
    rate: float = 0.0
    """Bits per second of each node's link; 0 leaves it as it is."""

    @classmethod
    def read(cls, folder: Path) -> "RoomPlan":
        """Return what was left in the folder of a run."""
        found = json.loads((folder / names.PLAN).read_text())
        found["events"] = [events.read(each) for each in found["events"]]
        found["meets"] = [Meets(**each) for each in found["meets"]]
        return cls(**found)


def name(number: int) -> str:
    """Return the host name of a node."""
    return f"node{number}"


def make(command: Command, awaited: list[Awaited], rate: float) -> RoomPlan:
    """Return what each node runs.

    Args:
        command: that of torchrun, meant for all nodes.
        awaited: what happens, and when.
        rate: of each node's link, in bits per second; 0 for any.
    """
    least, most = command.nodes
    one = _c10d if command.is_elastic else _static
    both = [one(number, command) for number in range(most)]
    return RoomPlan(
        typed=[typed.words for typed, _ in both],
        on_loopback=[on_loopback.words for _, on_loopback in both],
        least=least,
        fixed=command.is_fixed,
        elsewhere=command.elsewhere,
        env=command.own_store,
        meets=[typed.meets() for typed, _ in both],
        events=awaited,
        rate=rate,
    )


def _static(node: int, command: Command) -> tuple[Command, Command]:
    """Return what one node runs in a static rendezvous: typed, and on loopback."""
    typed = command.having(("--node-rank", str(node)), ("--master-addr", name(0)))
    return typed, command.at(node, LOOPBACK)


def _c10d(node: int, command: Command) -> tuple[Command, Command]:
    """Return the same for a rendezvous that nodes join and leave."""
    if not command.value("--rdzv-backend"):
        command = command.having(("--rdzv-backend", "c10d"))
    # Where all have one host name, each would take itself for the host.
    local = ("--local-addr", _local(node))
    if command.elsewhere:
        return command, command.having(local)
    typed = command.having((ENDPOINT, name(0)))
    return typed, command.at(node, LOOPBACK).having(local)


def _local(node: int) -> str:
    """Return an address of this machine: torchrun counts nodes in their order."""
    return f"127.0.0.{1 + node}" if sys.platform == "linux" else LOOPBACK
