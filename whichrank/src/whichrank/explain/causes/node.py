"""Why the nodes of a run do not come together, or one of them is lost."""

from dataclasses import dataclass

from whichrank.explain.cause import Cause
from whichrank.record.plan import Event
from whichrank.record.words import conjugate, ended_by, nodes, ranks

SHARED_STORE = (
    "all attempts share one store; TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the "
    "environment gives each its own, with `--standalone` or `--rdzv-backend c10d`"
)


@dataclass(frozen=True, kw_only=True)
class CutOff(Cause):
    """A node's cable is pulled."""

    def __str__(self) -> str:
        return "is cut off: its cable is pulled"

    @property
    def advice(self) -> str:
        """The event."""
        return f"by the event `cut node {self.node}`"


@dataclass(frozen=True, kw_only=True)
class NodeLost(Cause):
    """A node has gone, with its ranks."""

    ranks: tuple[int, ...]
    code: int | None
    """Of its torchrun, a signal; None if that was asked to end."""
    event: Event | None = None
    """What was done to it."""
    had_store: bool = False
    """Whether the others have lost the rendezvous with it."""

    def __str__(self) -> str:
        had = f", with {ranks(self.ranks)}" if self.ranks else ""
        how = "was asked to end" if self.code is None else ended_by(self.code)
        return f"has gone{had}: its torchrun {how}"

    @property
    def advice(self) -> str:
        """What was done to it, and what else has gone with it."""
        event = f"by the event `{self.event}`" if self.event else ""
        lost = "the others have lost the rendezvous with it" if self.had_store else ""
        return "; ".join(filter(None, [event, lost]))


@dataclass(frozen=True, kw_only=True)
class NodeFailed(Cause):
    """torchrun itself has failed on a node."""

    error: str

    def __str__(self) -> str:
        return self.error

    @property
    def advice(self) -> str:
        """What they mean."""
        return f"that is: {self.symptom.means}" if self.symptom else ""


@dataclass(frozen=True, kw_only=True)
class NodesMissing(Cause):
    """Nodes have not come to where the others wait for them."""

    at: str
    """Where they were to meet, as host and port."""
    away: tuple[int, ...] = ()
    """Those that have not come, if all were started from here; and who waits."""
    there: tuple[int, ...] = ()
    wanted: str = ""
    """What the command of the only node that we see says to --nnodes; if it waits for
    the first node, nothing."""
    missing: int = 0
    """How many that are more than have come."""

    def __str__(self) -> str:
        if self.away:
            return (
                f"{nodes(self.away)} {conjugate('have', self.away)} not come, and "
                f"{nodes(self.there)} {conjugate('wait', self.there)} at {self.at}"
            )
        if not self.wanted:
            return f"the node with --node-rank 0 has not come: nobody is at {self.at}"
        others = f"the other {self.missing} nodes have"
        others = "the second node has" if self.missing == 1 else others
        waits = f"this one waits at {self.at}, with --nnodes {self.wanted}"
        return f"{others} not come: {waits}"


@dataclass(frozen=True, kw_only=True)
class NodesNotMet(Cause):
    """All nodes have come, and no rank was started."""

    at: str

    def __str__(self) -> str:
        return f"the nodes do not meet at {self.at}, although they were started alike"

    @property
    def advice(self) -> str:
        """What to look at."""
        return "look at what that name means on each of them, and at firewalls"


@dataclass(frozen=True, kw_only=True)
class OwnLoopback(Cause):
    """A node offers an address that each machine takes for its own."""

    address: str
    ranks: tuple[int, ...]
    """Who has looked there."""

    def __str__(self) -> str:
        who = "a node " if self.node is None else ""
        finds = f"rank {self.ranks[0]} finds only its own machine"
        return f"{who}offers {self.address}, where {finds}"

    @property
    def advice(self) -> str:
        """What to look at."""
        return "look at its GLOO_SOCKET_IFNAME, and at its host name in its /etc/hosts"


@dataclass(frozen=True, kw_only=True)
class NodesChanged(Cause):
    """An attempt has ended because nodes have gone, or come."""

    gone: tuple[int, ...] = ()
    come: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = [(self.gone, "gone"), (self.come, "come")]
        clauses = [f"{nodes(n)} {conjugate('have', n)} {did}" for n, did in words if n]
        return ", ".join(clauses)

    @property
    def way(self) -> tuple:
        """Which nodes have gone."""
        return NodesChanged, self.gone, bool(self.come)
