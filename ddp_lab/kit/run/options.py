"""The words of a torchrun command: which are options, and what they say of its nodes.

An option may be cut short, written with `_` or `-`, and followed by `=` or a word, as
torchrun takes it.
"""

import re
from collections.abc import Sequence

Option = list[str]
"""An option of torchrun: one word, or two."""

AGENT = "-m torch.distributed.run --redirects 3 --monitor-interval 0.01".split()
"""What runs torchrun: each rank writes to files, and its end is seen at once."""

# All other options of torchrun take a value.
NO_PYTHON, MODULE = "--no-python", ("--module", "-m")
FLAGS = ("--standalone", "--run-path", "--virtual-local-rank", "--help", "-h")
LOGGING = ("--log-dir", "--redirects", "--tee", "-r", "-t")
OWN_RENDEZVOUS = re.compile(r"--(standalone|nnodes|node|rdzv|master)")

# Who writes one of these speaks of one node, and of a place where all meet.
ENDPOINT = "--rdzv-endpoint"
OF_A_PLACE = ("--node-rank", ENDPOINT, "--master-addr")
ONE_NODE = (*OF_A_PLACE, "--standalone")
# What else all nodes may name: a rendezvous that none of them hosts.
NO_HOST = "is_host=0"
# What a static rendezvous does not know: it needs every node, and restarts none.
ELASTIC = ("--max-restarts", "--rdzv-")
RANGE = re.compile(r"(\d+)(?::(\d+))?")
LOOPBACK = "127.0.0.1"
# By default the ranks of all attempts share a store. Those of a later one may find dead
# ranks' addresses there (gloo, torch 2.15: 3 of 8 runs in which a rank died once went
# wrong, none of 8 with a store for each attempt); a node that joins is never told
# where it is.
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
PORT = "{port}"  # stands for one that is free
STATIC_PORT, C10D_PORT = 29500, 29400  # torchrun's own


def split(argv: Sequence[str]) -> tuple[list[Option], list[str]]:
    """Return torchrun's own options, each with its value, and what comes after them."""
    options: list[Option] = []
    rest = list(argv)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest[0]
        flag = named([word], NO_PYTHON, *MODULE, *FLAGS)
        length = 1 if "=" in word or flag or _is_short_with_value(word) else 2
        options.append(rest[:length])
        del rest[:length]
    return options, rest


def named(option: Option, *names: str) -> bool:
    """Tell whether this option is one of `names`."""
    key = _key(option)
    key = key[:2] if _is_short_with_value(key) else key
    return key in names or len(key) > 2 and any(n.startswith(key) for n in names)


def has(options: Sequence[Option], *names: str) -> bool:
    """Tell whether one of the options is one of `names`."""
    return any(named(option, *names) for option in options)


def without(options: Sequence[Option], *names: str) -> list[Option]:
    """Return the options that are none of these."""
    return [option for option in options if not named(option, *names)]


def value(options: Sequence[Option], wanted: str) -> str | None:
    """Return the value of a long option, the last one if there are several."""
    last = None
    for option in options:
        if named(option, wanted):
            last = option[0].partition("=")[2] if len(option) == 1 else option[1]
    return last


def _key(option: Option) -> str:
    """Return the name of an option, as it is written with hyphens."""
    return option[0].partition("=")[0].replace("_", "-")


def _is_short_with_value(word: str) -> bool:
    """Tell whether `word` is a short option together with its value, as in -r3."""
    return len(word) > 2 and word[1] != "-"


def nodes(options: Sequence[Option]) -> tuple[int, int]:
    """Return the least and the most nodes that a command wants."""
    count = RANGE.fullmatch(value(options, "--nnodes") or "1")
    if not count:
        return 1, 1  # which torchrun will not understand either
    return int(count[1]), int(count[2] or count[1])


def is_for_all(options: Sequence[Option]) -> bool:
    """Tell whether a command is meant for several nodes, and for each of them."""
    names = [name for name in ONE_NODE if not (name == ENDPOINT and elsewhere(options))]
    return nodes(options)[1] > 1 and not has(options, *names)


def elsewhere(options: Sequence[Option]) -> str:
    """Return where the rendezvous is, if the command says that no node hosts it."""
    conf = (value(options, "--rdzv-conf") or "").split(",")
    return (value(options, ENDPOINT) or "") if NO_HOST in conf else ""


def is_elastic(options: Sequence[Option]) -> bool:
    """Tell whether a static rendezvous would not do."""
    least, most = nodes(options)
    return value(options, "--rdzv-backend") != "static" and (
        least < most
        or any(_key(option).startswith(each) for option in options for each in ELASTIC)
    )


def is_static(options: Sequence[Option]) -> bool:
    """Tell whether torchrun takes a static rendezvous, which has one store."""
    if has(options, "--standalone"):
        return False
    several = nodes(options)[1] > 1 or has(options, ENDPOINT, "--master-port")
    return (value(options, "--rdzv-backend") or "static" * several) == "static"


def is_fixed(options: Sequence[Option]) -> bool:
    """Tell whether every node is needed: then the end of one is the end of all."""
    least, most = nodes(options)
    again = value(options, "--max-restarts") or "0"
    return not is_elastic(options) or least == most and again == "0"


def at(node: int, options: Sequence[Option], address: str) -> list[Option]:
    """Return the options of one node whose ranks meet at `address`, that of node 0."""
    if is_elastic(options):
        if not value(options, "--rdzv-backend"):
            options = [*options, ["--rdzv-backend", "c10d"]]
        host, given = f"is_host={int(node == 0)}", value(options, "--rdzv-conf")
        conf = ["--rdzv-conf", ",".join(filter(None, [host, given]))]
        place = [ENDPOINT, f"{address}:{PORT}"]
        return [*without(options, "--rdzv-conf"), conf, place]
    here = [["--node-rank", str(node)], ["--master-addr", address]]
    port = value(options, "--master-port") or PORT
    return [*without(options, "--master-port"), *here, ["--master-port", port]]


def meets(options: Sequence[Option]) -> dict[str, str]:
    """Return how a node that is started so finds the others."""
    endpoint, backend = value(options, ENDPOINT), "c10d"
    if not endpoint:
        backend = value(options, "--rdzv-backend") or "static"
        address = value(options, "--master-addr") or LOOPBACK
        endpoint = f"{address}:{value(options, '--master-port') or STATIC_PORT}"
    elif ":" not in endpoint:
        endpoint = f"{endpoint}:{C10D_PORT}"
    return {
        "nnodes": value(options, "--nnodes") or "1",
        "rank": value(options, "--node-rank") or "0",
        "at": endpoint.removesuffix(f":{PORT}"),  # if it is found only there
        "backend": backend,
    }


def words(options: Sequence[Option], program: Sequence[str]) -> list[str]:
    """Return the words of a command again."""
    return [*sum(options, []), *program]
