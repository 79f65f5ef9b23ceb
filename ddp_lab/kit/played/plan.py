"""From a torchrun command for several nodes to what each node of them runs.

A command that names no node and no address, such as `--nnodes 2 --nproc-per-node 2
program.py`, is meant for all its nodes. Here is what one types on each of them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from ddp_lab.kit.run import options as opts
from ddp_lab.kit.run.options import LOOPBACK, Option

MOST_NODES = 80  # that are played: their files come in one message (wiring.py)


@dataclass(frozen=True)
class Plan:
    """What `room.py` has to do."""

    typed: list[list[str]]
    """What one types on each node, after `torchrun`."""
    on_loopback: list[list[str]]
    """The same for nodes that share one address."""
    least: int
    """With how many nodes the job can go on."""
    fixed: bool = True
    """Whether every node is needed: then the end of one is the end of all."""
    elsewhere: str = ""
    """Where the rendezvous is, if no node hosts it."""
    env: dict[str, str] = field(default_factory=dict)
    """What all nodes have in their environment."""
    meets: list[dict] = field(default_factory=list)
    """How each node is to find the others; see `options.meets`."""
    events: list[str] = field(default_factory=list)
    rate: float = 0.0
    """Bits per second of each node's link; 0 leaves it as it is."""


def name(number: int) -> str:
    """Return the host name of a node."""
    return f"node{number}"


def make(
    options: Sequence[Option],
    program: Sequence[str],
    env: dict[str, str] | None = None,
    **more: object,
) -> Plan:
    """Return what each node runs.

    Args:
        options: those of torchrun.
        program: the program and its arguments.
        env: variables for each node.
        more: what else the plan says: `events`, `rate`.
    """
    least, most = opts.nodes(options)
    one = _c10d if opts.is_elastic(options) else _static
    both = [one(number, list(options)) for number in range(most)]
    typed, on_loopback = ([*zip(*both, strict=True)][which] for which in (0, 1))
    return Plan(
        [opts.words(each, program) for each in typed],
        [opts.words(each, program) for each in on_loopback],
        least,
        opts.is_fixed(options),
        elsewhere=opts.elsewhere(options),
        env=env or {},
        meets=[opts.meets(each) for each in typed],
        **more,  # type: ignore[arg-type]
    )


def _static(node: int, options: list[Option]) -> tuple[list[Option], list[Option]]:
    """Return the options of one node in a static rendezvous."""
    typed = [*options, ["--node-rank", str(node)], ["--master-addr", name(0)]]
    return typed, opts.at(node, options, LOOPBACK)


def _c10d(node: int, options: list[Option]) -> tuple[list[Option], list[Option]]:
    """Return the options of one node in a rendezvous that nodes join and leave."""
    if not opts.value(options, "--rdzv-backend"):
        options = [*options, ["--rdzv-backend", "c10d"]]
    # Where all have one host name, each would take itself for the host.
    local = [["--local-addr", _local(node)]]
    if opts.elsewhere(options):
        return options, options + local
    on_loopback = opts.at(node, options, LOOPBACK) + local
    return [*options, [opts.ENDPOINT, name(0)]], on_loopback


def _local(node: int) -> str:
    """Return an address of this machine: torchrun counts nodes in their order."""
    return f"127.0.0.{1 + node}" if sys.platform == "linux" else LOOPBACK
