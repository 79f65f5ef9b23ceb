"""The words of torch, gloo, NCCL, Python and the system: one table, and only here.

A row says what the words tell of other ranks, which symptom they belong to, and whose
they are. Those of torch are looked for in the files of the release that is installed
(tests/test_symptoms.py), so that one which they have left is seen.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto


class Blames(Enum):
    """Whom a rank blames for its end, in words that are torch's."""

    ITSELF = auto()
    GONE = auto()
    """Another rank, which has gone."""
    OUT_OF_STEP = auto()
    """Others, which came too late, or with something else."""
    LOGGED = auto()
    """Them likewise, in a log: then it ended in another way."""


TORCH = "torch 2.14"


@dataclass(frozen=True)
class Words:
    """One row of the table."""

    pattern: str
    """Matches the words."""
    symptom: str = ""
    """Its name in explain/symptoms.py, if they tell one."""
    blames: Blames = Blames.ITSELF
    of: str = TORCH
    """Whose they are, and in which release they were seen; `read` were not."""


GONE, LATE = Blames.GONE, Blames.OUT_OF_STEP
PYTHON, SYSTEM = "Python", "the system"
# The first row that matches tells the symptom.
TABLE = (
    Words(r"Timed out waiting \d+ms", "absent", LATE),
    Words(r"Watchdog caught collective operation timeout", "absent", LATE),
    Words(r"Operation timed out after \d+ ms", "absent", LATE),
    Words(r"Aborting process due to timeout", "absent", LATE, "NCCL, read"),
    Words(r"failed to pass monitoredBarrier", "absent", LATE),
    Words(r"monitoredBarrier", "", LATE),
    Words(r"wait timeout after", "", LATE),
    Words(r"Detected mismatch between collectives", "different calls", LATE),
    Words(r"op\.preamble\.length", "different tensors", LATE),
    Words(r"inLengthPerRank", "different tensors"),  # of all_to_all_single
    Words(r"DDP expects same model across all ranks", "different tensors", LATE),
    Words(r"tensor shapes? (must be|mismatch)", "different tensors", of="read"),
    Words(r"do not match across", "different tensors", of="read"),
    Words(r"Connection (closed|reset) by peer", "victim", GONE),
    Words(r"Broken pipe", "victim", GONE, SYSTEM),
    Words(r"Socket closed", "victim", GONE),
    Words(
        r"\b(eof|EOF|EPIPE|closed|ECONNRESET)\b.* "
        r"\(this error originated at tensorpipe/",
        "victim",
        GONE,
        "tensorpipe",
    ),
    Words(r"connectFullMesh failed", "", GONE),
    Words(r"remote process exited", "", GONE, "NCCL"),
    Words(r"NCCL communicator was aborted", "", GONE),
    Words(r"recvValue failed", "", GONE),
    Words(r"failed to recv, got 0 bytes", "", GONE, "read"),
    Words(r"Connection was likely closed", "", GONE),
    Words(r"RPC ran for more than set timeout", "late call"),
    Words(r"SIGKILL", "killed", of=SYSTEM),
    Words(r"SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL", "crash", of=SYSTEM),
    Words(r"environment variable \w+ expected, but not set", "no launcher"),
    Words(
        r"arguments(:| are required:) .*--local[-_]rank",
        "local rank option",
        of=PYTHON,
    ),
    Words(r"EADDRINUSE|[Aa]ddress already in use", "port taken", of=SYSTEM),
    Words(r"not compatible with static_graph set to True", "static graph"),
    Words(
        r"Expected to have finished reduction in the prior iteration",
        "unused parameters",
    ),
    Words(r"mark a variable ready only once", "ready twice"),
    Words(r"marked as ready twice", "ready twice"),
    Words(r"RendezvousConnectionError", "rendezvous"),
    Words(r"The connection to the C10d store has failed", "rendezvous"),
    Words(r"Unable to find (address|interface) for", "network"),
    Words(r"got mixed torch\.Tensor and DTensor", "plain tensor"),
    Words(r"on inputs with different meshes", "two meshes", of="read"),
    Words(r"must have the same mesh", "two meshes"),
    Words(r"Can't (pickle|get) local object", "not importable", of=PYTHON),
    Words(r"CUDA out of memory", "CUDA memory"),
    Words(r"CUDA error: out of memory", "CUDA memory", of="CUDA"),
    Words(r"can't allocate memory", "memory"),
    Words(r"Cannot allocate memory|MemoryError", "memory", of=SYSTEM),
    Words(r"Found no NVIDIA driver", "no GPU"),
    Words(r"not compiled with CUDA", "no GPU"),
    Words(r"No CUDA GPUs are available", "no GPU"),
    Words(r"invalid device ordinal|no CUDA-capable device", "no GPU", of="CUDA"),
    Words(r"NCCL is only supported with GPUs", "NCCL without GPUs"),
    Words(r"NCCL built in", "NCCL without GPUs"),
    Words(r"requires at least one CUDA", "NCCL without GPUs", of="torch 2.14, made"),
    Words(r"busy or unavailable", "busy GPU", of="CUDA"),
    Words(r"Duplicate GPU detected", "shared GPU", of="NCCL, read"),
    Words(r"BdbQuit|EOF when reading a line", "no keyboard", of=PYTHON),
    Words(
        r"EMFILE|[Tt]oo many open files|Errno 24\b", "too many open files", of=SYSTEM
    ),
    Words(r"Failed to init uv loop", "too many open files"),
    Words(
        r"No space left on device|Disk quota exceeded|Errno 28\b",
        "disk full",
        of=SYSTEM,
    ),
    Words(r"Read-only file system|PermissionError", "read-only", of=SYSTEM),
    Words(r"Parent directory .* does not exist", "folder"),
    Words(r"FileExistsError", "folder", of=PYTHON),
    Words(r"PytorchStreamReader failed", "damaged file"),
    Words(r"unexpected EOF", "damaged file"),
    Words(
        r"Ran out of input|invalid load key|unpickling stack underflow",
        "damaged file",
        of=PYTHON,
    ),
    # Not "This file can still be loaded", which comes after it in other cases.
    Words(r"Weights only load failed\. In PyTorch", "damaged file", of="read"),
    Words(r"Error\(s\) in loading state_dict", "another checkpoint"),
)

# What loses a connection of its own, say to a server, has failed by itself: torch
# raises a RuntimeError, or one of its own.
OF_ITS_OWN = re.compile(
    r"(?!torch\.|RuntimeError\b|Dist\w+Error\b)(\w+\.)*\w*(Error|Exception|Timeout)\b"
)
# What the words of torch say of themselves, whoever repeats them.
QUOTED = re.compile("torch|gloo|nccl|c10d|tensorpipe", re.IGNORECASE)
SOURCE = re.compile(r"    [^ |+]")  # a line of the program in a traceback

# Facts in words of torch.
SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, "
    r")?OpType=(\w+)(?:, TensorShape=\[(.*?)\], TensorDtypes=(\w+))?"
)
# How many parameters a rank has, where DDP finds that another has more, or fewer.
PARAMETERS = re.compile(r"same model across all ranks, but Rank \d+ has (\d+) params")
# Where gloo has looked for another rank, and finds only this machine.
LOOPBACK = re.compile(r"remote=\[(127\.[\d.]+|::1)\]")
# With which torchrun reports the ranks that failed, and what else it says when another
# node has failed, or its own ranks.
REPORT = "ChildFailedError"
ECHOES = re.compile(rf"{REPORT}|SignalException|RendezvousClosedError")
# What it says when somebody has asked it to end; its exit code is then 1.
OBEYED = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
# Its report of the ranks that have failed.
EXIT_CODE = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
# Whoever raises anew what another process has raised puts its traceback in the message.
RAISED_ANEW = re.compile(r"Caught \w+ in|terminated with the following error")
# A store that has no answer: who asks it directly waits for no call of the others.
STORE = "torch.distributed.DistStoreError"
# Whoever finds nobody at the other end tries again, for half an hour, and says so.
TRIES = re.compile(rb"\s*(\[[WE]\d+ .*\[c10d\] |Exception raised from |frame #)")
# Printed by every healthy run, or the native stack in an error message; whatever else
# appears on stderr is for the reader.
NOISE = re.compile(
    r"OMP_NUM_THREADS|^\*+$|^\[Gloo\] Rank|^frame #\d+: |^\s*$"
    r"|ProcessGroupGloo\.cpp:\d+\] Gloo connectFullMesh failed"  # and raises the same
)


def _any(rows: Iterable[Words]) -> re.Pattern:
    return re.compile("|".join(row.pattern for row in rows))


LOST_PEER = _any(row for row in TABLE if row.blames is GONE)
OUT_OF_STEP = _any(row for row in TABLE if row.blames is LATE)


def symptom_of(message: str) -> str:
    """Return the name of the first symptom to which words of `message` belong."""
    rows = (row for row in TABLE if row.symptom and re.search(row.pattern, message))
    return next((row.symptom for row in rows), "")


def lost_peer(text: str) -> bool:
    """Tell whether a rank's words, or its traceback, say that another one has gone."""
    lines = [line for line in text.split("\n") if LOST_PEER.search(line)]
    return not all(OF_ITS_OWN.match(line) or SOURCE.match(line) for line in lines)


def blames(ended: str, logged: str) -> Blames:
    """Return whom a rank blames.

    Args:
        ended: the words in which it has ended.
        logged: what it has written last beside them.
    """
    if lost_peer(ended):
        return GONE
    if OUT_OF_STEP.search(ended):
        return LATE
    return Blames.LOGGED if OUT_OF_STEP.search(logged) else Blames.ITSELF


def signal_obeyed(text: str) -> int:
    """Return the signal because of which a torchrun says that it ends; 0 for none."""
    match = OBEYED.search(text)
    return int(match[1]) if match else 0
