"""What torch and gloo say of other ranks: only this module knows their words.

Those of the program itself, such as the error of a connection of its own, say nothing
of other ranks: RankLog.heard.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from ddp_lab.kit.record.calls import DTYPES, Call
from ddp_lab.kit.record.stacks import REPORT

# What a rank says when another one has gone.
LOST_PEER = re.compile(
    r"Connection (closed|reset) by peer|connectFullMesh failed|Broken pipe"
    r"|remote process exited|NCCL communicator was aborted|recvValue failed"
    r"|failed to recv, got 0 bytes|Connection was likely closed|Socket closed"
    r"|\b(eof|EOF|EPIPE|closed|ECONNRESET)\b.* \(this error originated at tensorpipe/"
)
# What a rank says when it has waited too long, or got what it had not asked for.
OUT_OF_STEP = re.compile(
    r"Timed out waiting \d+ms|Watchdog caught collective|monitoredBarrier"
    r"|Operation timed out after \d+ ms|Aborting process due to timeout"
    r"|op\.preamble\.length|wait timeout after|Detected mismatch between collectives"
    r"|DDP expects same model across all ranks"
)
# torch raises that as a RuntimeError, or one of its own. What loses a connection of its
# own, say to a server, has failed by itself.
OF_ITS_OWN = re.compile(
    r"(?!torch\.|RuntimeError\b|Dist\w+Error\b)(\w+\.)*\w*(Error|Exception|Timeout)\b"
)
SOURCE = re.compile(r"    [^ |+]")  # a line of the program in a traceback
SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, "
    r")?OpType=(\w+)(?:, TensorShape=\[(.*?)\], TensorDtypes=(\w+))?"
)
# DDP compares how many parameters each rank has.
PARAMETERS = re.compile(
    r"Rank (\d+) has (\d+) params, while rank (\d+) has inconsistent (\d+) params"
)
# Where gloo has looked for another rank, and finds only this machine.
LOOPBACK = re.compile(r"remote=\[(127\.[\d.]+|::1)\]")
# What torchrun says when another node has failed, or its own ranks.
ECHOES = re.compile(rf"{REPORT}|SignalException|RendezvousClosedError")
# What it says when somebody has asked it to end; its exit code is then 1.
OBEYED = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
# Its report of the ranks that have failed.
EXIT_CODE = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
# Whoever raises anew what another process has raised puts its traceback in the message.
RAISED_ANEW = re.compile(r"Caught \w+ in|terminated with the following error")

# A store that has no answer: who asks it directly waits for no call of the others.
STORE = "torch.distributed.DistStoreError"
# What a pool's worker has raised; its traceback stands between quotes.
REMOTE = re.compile(r", from [\w.]+\._?RemoteTraceback: ")
REMOTELY = re.compile(r'RemoteTraceback: \n"""\n(.*?)\n"""\n', re.DOTALL)


class Blames(Enum):
    """Whom a rank blames for its end, in words that are torch's."""

    ITSELF = auto()
    GONE = auto()
    """Another rank, which has gone."""
    OUT_OF_STEP = auto()
    """Others, which came too late, or with something else."""
    LOGGED = auto()
    """Them likewise, in a log: then it ended in another way."""


@dataclass(frozen=True)
class Heard:
    """What a rank has said of others."""

    blames: Blames = Blames.ITSELF
    sizes: tuple[int, int] | None = None
    """The bytes that came, and those that were expected."""
    calls: Mapping[int, Call] = field(default_factory=dict)
    """The calls of two ranks that differ, as TORCH_DISTRIBUTED_DEBUG=DETAIL has it."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """How many parameters ranks have, as DDP has it."""
    loopback: str = ""
    """The address of its own machine at which it has looked for another."""

    @property
    def gave_up(self) -> bool:
        """Whether it ended because others did not do their part of a call."""
        return self.blames in (Blames.GONE, Blames.OUT_OF_STEP)


def lost_peer(text: str) -> bool:
    """Tell whether a rank's words, or its traceback, say that another one has gone."""
    said = [line for line in text.split("\n") if LOST_PEER.search(line)]
    return not all(OF_ITS_OWN.match(line) or SOURCE.match(line) for line in said)


def signal_obeyed(said: str) -> int:
    """Return the signal because of which a torchrun says that it ends; 0 for none."""
    found = OBEYED.search(said)
    return int(found[1]) if found else 0


def listen(ended: str, logged: str = "") -> Heard:
    """Return what is said of other ranks.

    Args:
        ended: the words in which a rank has ended.
        logged: what it has written last beside them.
    """
    words = f"{ended}\n{logged}"
    sizes, loopback = SIZES.search(words), LOOPBACK.search(words)
    counts: dict[int, int] = {}
    for one, count, other, others in PARAMETERS.findall(words):
        counts |= {int(one): int(count), int(other): int(others)}
    return Heard(
        _blames(ended, logged),
        (int(sizes[1]), int(sizes[2])) if sizes else None,
        {int(rank): _call(*call) for rank, *call in FINGERPRINT.findall(words)},
        counts,
        loopback[1] if loopback else "",
    )


def _blames(ended: str, logged: str) -> Blames:
    if lost_peer(ended):
        return Blames.GONE
    if OUT_OF_STEP.search(ended):
        return Blames.OUT_OF_STEP
    return Blames.LOGGED if OUT_OF_STEP.search(logged) else Blames.ITSELF


def _call(name: str, shape: str, dtype: str) -> Call:
    sizes = tuple(int(size) for size in shape.split(",") if size.strip().isdecimal())
    dtypes = (DTYPES.get(dtype, dtype),) if dtype else ()
    name = name.lower()
    return Call(name, name, "", 0, (sizes,), dtypes, False, False, None)
