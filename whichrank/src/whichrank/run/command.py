"""The words of a torchrun command: which are options, and what they say of its nodes.

An option may be cut short, written with `_` or `-`, and followed by `=` or a word, as
torchrun takes it.
"""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whichrank.record.plan import Meets

Option = tuple[str, ...]
"""An option of torchrun: one word, or two."""

AGENT = "-m torch.distributed.run --redirects 3 --monitor-interval 0.01".split()
"""What runs torchrun: each rank writes to files, and its end is seen at once."""

# All other options of torchrun take a value.
NO_PYTHON, MODULE = "--no-python", ("--module", "-m")
FLAGS = ("--standalone", "--run-path", "--virtual-local-rank", "--help", "-h")
LOGGING = ("--log-dir", "--redirects", "--tee", "-r", "-t")
OWN_RENDEZVOUS = re.compile(r"--(standalone|nnodes|node|rdzv|master)")
NO_FILE = (NO_PYTHON, *MODULE, "--help", "-h")
"""With one of these the program is no file."""

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


@dataclass(frozen=True)
class Command:
    """What stands behind `torchrun` in a terminal.

    A method that returns a command leaves this one as it is.
    """

    options: tuple[Option, ...] = ()
    """torchrun's own, each with its value."""
    program: tuple[str, ...] = ()
    """The program and its arguments."""

    @classmethod
    def parse(cls, words: str | Sequence[str]) -> "Command":
        """Return the parts of a command, which is one string or its words."""
        rest = shlex.split(words) if isinstance(words, str) else list(words)
        options: list[Option] = []
        while rest and rest[0].startswith("-") and rest[0] != "--":
            word = rest[0]
            flag = named((word,), NO_PYTHON, *MODULE, *FLAGS)
            length = 1 if "=" in word or flag or _is_short_with_value(word) else 2
            options.append(tuple(rest[:length]))
            del rest[:length]
        return cls(tuple(options), tuple(rest))

    @property
    def words(self) -> list[str]:
        """The words of the command again."""
        return [*(word for option in self.options for word in option), *self.program]

    def __str__(self) -> str:
        """What a terminal would take."""
        store = [f"{name}={value}" for name, value in self.own_store.items()]
        return " ".join([*store, shlex.join(["torchrun", *self.words])])

    # --- its options ---

    def having(self, *options: Option) -> "Command":
        """Return the command with these options behind its own."""
        return replace(self, options=(*self.options, *options))

    def without(self, *names: str) -> "Command":
        """Return the command without the options of these names."""
        left = [option for option in self.options if not named(option, *names)]
        return replace(self, options=tuple(left))

    def has(self, *names: str) -> bool:
        """Tell whether one of the options is one of `names`."""
        return any(named(option, *names) for option in self.options)

    def value(self, wanted: str) -> str | None:
        """Return the value of a long option, the last one if there are several."""
        last = None
        for option in self.options:
            if named(option, wanted):
                last = option[0].partition("=")[2] if len(option) == 1 else option[1]
        return last

    @property
    def file(self) -> str:
        """The program's file; "" if it has none."""
        return "" if self.has(*NO_FILE) or not self.program else self.program[0]

    # --- its nodes ---

    @property
    def nodes(self) -> tuple[int, int]:
        """The least and the most nodes that the command wants."""
        count = RANGE.fullmatch(self.value("--nnodes") or "1")
        if not count:
            return 1, 1  # which torchrun will not understand either
        return int(count[1]), int(count[2] or count[1])

    @property
    def is_for_all(self) -> bool:
        """Whether the command is meant for several nodes, and for each of them."""
        names = [name for name in ONE_NODE if not (name == ENDPOINT and self.elsewhere)]
        return self.nodes[1] > 1 and not self.has(*names)

    @property
    def elsewhere(self) -> str:
        """Where the rendezvous is, if the command says that no node hosts it."""
        conf = (self.value("--rdzv-conf") or "").split(",")
        return (self.value(ENDPOINT) or "") if NO_HOST in conf else ""

    @property
    def finds_others(self) -> bool:
        """Whether the command says anything of nodes, and of where they meet."""
        return any(OWN_RENDEZVOUS.match(option[0]) for option in self.options)

    @property
    def is_elastic(self) -> bool:
        """Whether a static rendezvous would not do."""
        least, most = self.nodes
        keys = [_key(option) for option in self.options]
        return self.value("--rdzv-backend") != "static" and (
            least < most or any(key.startswith(ELASTIC) for key in keys)
        )

    @property
    def is_static(self) -> bool:
        """Whether torchrun takes a static rendezvous, which has one store."""
        if self.has("--standalone"):
            return False
        several = self.nodes[1] > 1 or self.has(ENDPOINT, "--master-port")
        return (self.value("--rdzv-backend") or "static" * several) == "static"

    @property
    def is_fixed(self) -> bool:
        """Whether every node is needed: then the end of one is the end of all."""
        least, most = self.nodes
        again = self.value("--max-restarts") or "0"
        return not self.is_elastic or least == most and again == "0"

    @property
    def own_store(self) -> dict[str, str]:
        """What gives each attempt a store of its own, where ranks may be restarted."""
        static = self.is_static and not self.is_for_all  # for all of them see `at`
        given = self.is_fixed or static or OWN_STORE in os.environ
        return {} if given else {OWN_STORE: "1"}

    def alone(self) -> "Command":
        """Return the command for this machine alone, unless it finds others itself."""
        if self.finds_others:
            return self
        return replace(self, options=(("--standalone",), *self.options))

    def at(self, node: int, address: str) -> "Command":
        """Return that of one node whose ranks meet at `address`, that of node 0."""
        if self.is_elastic:
            backend: list[Option] = []
            if not self.value("--rdzv-backend"):
                backend = [("--rdzv-backend", "c10d")]
            host, given = f"is_host={int(node == 0)}", self.value("--rdzv-conf")
            conf = ("--rdzv-conf", ",".join(filter(None, [host, given])))
            place = (ENDPOINT, f"{address}:{PORT}")
            return self.having(*backend).without("--rdzv-conf").having(conf, place)
        here = [("--node-rank", str(node)), ("--master-addr", address)]
        port = self.value("--master-port") or PORT
        rest = self.without("--master-port")
        return rest.having(*here, ("--master-port", port))

    def meets(self) -> Meets:
        """Return how a node that is started so finds the others."""
        endpoint, backend = self.value(ENDPOINT), "c10d"
        if not endpoint:
            backend = self.value("--rdzv-backend") or "static"
            address = self.value("--master-addr") or LOOPBACK
            endpoint = f"{address}:{self.value('--master-port') or STATIC_PORT}"
        elif ":" not in endpoint:
            endpoint = f"{endpoint}:{C10D_PORT}"
        return Meets(
            nnodes=self.value("--nnodes") or "1",
            rank=self.value("--node-rank") or "0",
            at=endpoint.removesuffix(f":{PORT}"),  # if it is found only there
            backend=backend,
        )


def named(option: Option, *names: str) -> bool:
    """Tell whether this option is one of `names`."""
    key = _key(option)
    key = key[:2] if _is_short_with_value(key) else key
    return key in names or len(key) > 2 and any(n.startswith(key) for n in names)


def _key(option: Option) -> str:
    """Return the name of an option, as it is written with hyphens."""
    return option[0].partition("=")[0].replace("_", "-")


def _is_short_with_value(word: str) -> bool:
    """Tell whether `word` is a short option together with its value, as in -r3."""
    return len(word) > 2 and word[1] != "-"
