"""From a torchrun command for several nodes to what each node of them runs.

A command that names no node and no address, such as `--nnodes 2 --nproc-per-node 2
program.py`, is meant for all its nodes. Here is what one types on each of them.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

Option = list[str]
"""An option of torchrun: one word, or two."""

AGENT = "-m torch.distributed.run --redirects 3 --monitor-interval 0.01".split()
"""What runs torchrun: each rank writes to files, and its end is seen at once."""

# Who writes one of these speaks of one node, and of a place where all meet.
ENDPOINT = "--rdzv-endpoint"
ONE_NODE = ("--node-rank", ENDPOINT, "--master-addr", "--standalone")
# What else all nodes may name: a rendezvous that none of them hosts.
NO_HOST = "is_host=0"
# What a static rendezvous does not know: it needs every node, and restarts none.
ELASTIC = ("--max-restarts", "--rdzv-")
NAME = re.compile(r"\bnode\d+\b")  # of a played node
PLACE = re.compile(r"node(\d+):(\d+)")  # where its torchrun listens
RANGE = re.compile(r"(\d+)(?::(\d+))?")
LOOPBACK = "127.0.0.1"
PORT = "{port}"  # stands for one that is free
MOST_NODES = 80  # that are played: each has three files in one message (wiring.py)
STATIC_PORT, C10D_PORT = 29500, 29400  # torchrun's own


@dataclass(frozen=True)
class Plan:
    """What `nodes.py` has to do."""

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
    env: list[dict[str, str]] = field(default_factory=list)
    """What each node has in its environment beside what all have."""
    meets: list[dict] = field(default_factory=list)
    """How each node is to find the others; see `meets`."""
    events: list[str] = field(default_factory=list)
    rate: float = 0.0
    """Bits per second of each node's link; 0 leaves it as it is."""
    delay: float = 0.0
    """Seconds that each node's link takes, one way."""

    def as_json(self) -> dict:
        """Return it as nodes.py reads it."""
        return asdict(self)


def name(number: int) -> str:
    """Return the host name of a node."""
    return f"node{number}"


def value(options: Sequence[Option], wanted: str) -> str | None:
    """Return the value of a long option, the last one if there are several."""
    found = None
    for option in options:
        if _named(option, wanted):
            found = option[0].partition("=")[2] if len(option) == 1 else option[1]
    return found


def nodes(options: Sequence[Option]) -> tuple[int, int]:
    """Return the least and the most nodes that a command wants."""
    found = RANGE.fullmatch(value(options, "--nnodes") or "1")
    if not found:
        return 1, 1  # which torchrun will not understand either
    return int(found[1]), int(found[2] or found[1])


def most_ranks(machines: Sequence[Sequence[Option]]) -> int | None:
    """Return how many ranks there can be on machines with these options, if told."""
    counts = [value(options, "--nproc-per-node") or "1" for options in machines]
    known = all(count.isdecimal() for count in counts)
    return sum(map(int, counts)) if known else None


def is_for_all(options: Sequence[Option]) -> bool:
    """Tell whether a command is meant for several nodes, and for each of them."""
    names = [name for name in ONE_NODE if not (name == ENDPOINT and elsewhere(options))]
    one = any(_named(option, each) for option in options for each in names)
    return nodes(options)[1] > 1 and not one


def elsewhere(options: Sequence[Option]) -> str:
    """Return where the rendezvous is, if the command says that no node hosts it."""
    conf = (value(options, "--rdzv-conf") or "").split(",")
    return (value(options, ENDPOINT) or "") if NO_HOST in conf else ""


def names_a_place(options: Sequence[Option]) -> bool:
    """Tell whether a command says where its ranks meet, or which node it is for."""
    places = [each for each in ONE_NODE if each != "--standalone"]
    return any(_named(option, each) for option in options for each in places)


def without(options: Sequence[Option], *names: str) -> list[Option]:
    """Return the options that are none of these."""
    return [o for o in options if not any(_named(o, each) for each in names)]


def is_elastic(options: Sequence[Option]) -> bool:
    """Tell whether a static rendezvous would not do."""
    least, most = nodes(options)
    return value(options, "--rdzv-backend") != "static" and (
        least < most
        or any(_key(option).startswith(each) for option in options for each in ELASTIC)
    )


def is_fixed(options: Sequence[Option]) -> bool:
    """Tell whether every node is needed: then the end of one is the end of all."""
    least, most = nodes(options)
    again = value(options, "--max-restarts")
    return not is_elastic(options) or least == most and not again


def make(options: Sequence[Option], program: Sequence[str], **more: object) -> Plan:
    """Return what each node runs.

    Args:
        options: those of torchrun.
        program: the program and its arguments.
        more: what else the plan says: `events`, `rate`, `delay`.
    """
    least, most = nodes(options)
    words = _c10d if is_elastic(options) else _static
    both = [words(number, list(options)) for number in range(most)]
    typed, on_loopback = ([*zip(*both, strict=True)][which] for which in (0, 1))
    return Plan(
        [_words(each, program) for each in typed],
        [_words(each, program) for each in on_loopback],
        least,
        is_fixed(options),
        elsewhere=elsewhere(options),
        env=[{} for _ in typed],
        meets=[meets(each, program) for each in typed],
        **more,  # type: ignore[arg-type]
    )


def at(node: int, options: Sequence[Option], address: str) -> list[Option]:
    """Return the options of one node whose ranks meet at `address`, that of node 0."""
    if is_elastic(options):
        if not value(options, "--rdzv-backend"):
            options = [*options, ["--rdzv-backend", "c10d"]]
        place = [ENDPOINT, f"{address}:{PORT}"]
        return [*without(options, "--rdzv-conf"), _host(node, options), place]
    here = [["--node-rank", str(node)], ["--master-addr", address]]
    port = value(options, "--master-port") or PORT
    return [*without(options, "--master-port"), *here, ["--master-port", port]]


def _host(node: int, options: Sequence[Option]) -> Option:
    """Return the option that tells a node whether all meet at its place."""
    host, given = f"is_host={int(node == 0)}", value(options, "--rdzv-conf")
    return ["--rdzv-conf", ",".join(filter(None, [host, given]))]


def by_hand(
    machines: Sequence[tuple[dict[str, str], list[Option], list[str]]], **more: object
) -> Plan:
    """Return a plan of commands that were typed for each node by itself.

    Args:
        machines: of each, its own environment, torchrun's options, and the program.
        more: what else the plan says: `events`, `rate`, `delay`.
    """
    typed = [_words(options, program) for _, options, program in machines]
    return Plan(
        typed,
        [[NAME.sub(LOOPBACK, word) for word in words] for words in typed],
        min(nodes(options)[0] for _, options, _ in machines),
        fixed=all(nodes(each) == (len(typed), len(typed)) for _, each, _ in machines),
        env=[env for env, _, _ in machines],
        meets=[meets(options, program) for _, options, program in machines],
        **more,  # type: ignore[arg-type]
    )


def meets(options: Sequence[Option], program: Sequence[str]) -> dict:
    """Return how a node that is started so finds the others, and what it runs."""
    endpoint, backend = value(options, "--rdzv-endpoint"), "c10d"
    if not endpoint:
        backend = value(options, "--rdzv-backend") or "static"
        address = value(options, "--master-addr") or LOOPBACK
        endpoint = f"{address}:{value(options, '--master-port') or STATIC_PORT}"
    elif ":" not in endpoint:
        endpoint = f"{endpoint}:{C10D_PORT}"
    return {
        "nnodes": value(options, "--nnodes") or "1",
        "ranks": value(options, "--nproc-per-node") or "1",
        "rank": value(options, "--node-rank") or "0",
        "at": endpoint,
        "id": value(options, "--rdzv-id") or "none",
        "backend": backend,
        "program": program[:1],
    }


def _static(node: int, options: list[Option]) -> tuple[list[Option], list[Option]]:
    """Return the options of one node in a static rendezvous."""
    typed = [*options, ["--node-rank", str(node)], ["--master-addr", name(0)]]
    return typed, at(node, options, LOOPBACK)


def _c10d(node: int, options: list[Option]) -> tuple[list[Option], list[Option]]:
    """Return the options of one node in a rendezvous that nodes join and leave."""
    if not value(options, "--rdzv-backend"):
        options = [*options, ["--rdzv-backend", "c10d"]]
    if elsewhere(options):
        return options, [*options, ["--local-addr", _local(node)]]
    # Where all have one host name, each would take itself for the host.
    on_loopback = [*at(node, options, LOOPBACK), ["--local-addr", _local(node)]]
    return [*options, [ENDPOINT, name(0)]], on_loopback


def _local(node: int) -> str:
    """Return an address of this machine: torchrun counts nodes in their order."""
    return f"127.0.0.{1 + node}" if sys.platform == "linux" else LOOPBACK


def _words(options: Sequence[Option], program: Sequence[str]) -> list[str]:
    return [*(word for option in options for word in option), *program]


def _key(option: Option) -> str:
    """Return the name of an option, as it is written with hyphens."""
    return option[0].partition("=")[0].replace("_", "-")


def _named(option: Option, wanted: str) -> bool:
    """Tell whether this option is `wanted`, which may be cut short."""
    key = _key(option)
    return key.startswith("--") and len(key) > 3 and wanted.startswith(key)
