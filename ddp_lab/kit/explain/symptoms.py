"""What goes wrong in distributed programs: how it looks, and what it means.

One table for three readers: the launcher names the cause with it, lesson 7 teaches it,
and the README prints it (`python -m ddp_lab.kit.explain.symptoms`).
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Symptom:
    """One way to fail."""

    name: str
    looks: str
    """What the reader sees, for the README's table."""
    means: str
    """The cause in one sentence."""
    lesson: str
    """The notebook's file name without its suffix."""
    pattern: str = ""
    """Matches the messages of PyTorch and of the system that belong to it."""


SYMPTOMS = [
    Symptom(
        "absent",
        "nothing more is printed; some ranks wait in a collective",
        "a rank that the others wait for is elsewhere, or has left",
        "07_when_it_hangs",
        r"Timed out waiting \d+ms|Watchdog caught collective operation timeout"
        r"|failed to pass monitoredBarrier",
    ),
    Symptom(
        "different calls",
        "a hang, a wrong result or an abort in gloo's `pair.cc`",
        "the ranks make different calls, or the same ones in another order",
        "07_when_it_hangs",
        r"Detected mismatch between collectives",
    ),
    Symptom(
        "different tensors",
        "an abort with `op.preamble.length <= op.nbytes`, or silently wrong numbers",
        "the ranks bring tensors of different shapes or dtypes to one call",
        "07_when_it_hangs",
        r"op\.preamble\.length|tensor shapes? (must be|mismatch)|do not match across",
    ),
    Symptom(
        "cycle",
        "every rank waits in `send` or `recv`",
        "each rank waits for another one in a circle, so nobody can be the first",
        "01_point_to_point",
    ),
    Symptom(
        "busy",
        "nothing more is printed, and no rank waits for another",
        "a loop without an end, or work that takes longer than the run may be silent",
        "07_when_it_hangs",
    ),
    Symptom(
        "victim",
        "`Connection closed by peer` or `Connection reset by peer`",
        "another rank has gone: look for what that one said",
        "00_start_here",
        r"Connection (closed|reset) by peer|Broken pipe|Socket closed",
    ),
    Symptom(
        "killed",
        "a rank ends by SIGKILL, without a word",
        "usually the system has run out of memory and has chosen this process",
        "04_checkpointing",
        r"SIGKILL",
    ),
    Symptom(
        "crash",
        "a rank ends by SIGSEGV, SIGABRT or SIGBUS",
        "native code has crashed, or found something wrong; SIGBUS: a full /dev/shm",
        "07_when_it_hangs",
        r"SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL",
    ),
    Symptom(
        "no launcher",
        "`environment variable RANK expected, but not set`",
        "the program was started by python, not by torchrun",
        "00_start_here",
        r"environment variable \w+ expected, but not set",
    ),
    Symptom(
        "port taken",
        "`EADDRINUSE` or `address already in use`",
        "another process listens at this port: start with `--standalone`, and let the "
        "system choose one",
        "07_when_it_hangs",
        r"EADDRINUSE|[Aa]ddress already in use",
    ),
    Symptom(
        "unused parameters",
        "`Expected to have finished reduction in the prior iteration`",
        "a parameter got no gradient, and DDP still waits for it: "
        "`find_unused_parameters=True`, or use every parameter in each step",
        "07_when_it_hangs",
        r"Expected to have finished reduction in the prior iteration",
    ),
    Symptom(
        "groups",
        "ranks wait in `new_group`, or in a call of the next group",
        "every rank has to call `new_group`, also a rank that will not be a member",
        "07_when_it_hangs",
    ),
    Symptom(
        "rendezvous",
        "every rank waits in `init_process_group`",
        "the ranks do not meet at one address and port: nobody, or somebody else, is "
        "there",
        "07_when_it_hangs",
    ),
    Symptom(
        "world in a world",
        "more processes than ranks, each complaining or waiting",
        "`mp.spawn` under torchrun: both start the ranks, choose one",
        "03_ddp_basics",
    ),
    Symptom(
        "CUDA memory",
        "`CUDA out of memory`",
        "this GPU has no room left for this rank",
        "06_cifar10_resnet",
        r"CUDA out of memory|CUDA error: out of memory",
    ),
    Symptom(
        "memory",
        "`DefaultCPUAllocator: can't allocate memory`",
        "the machine has no memory left for this rank",
        "06_cifar10_resnet",
        r"can't allocate memory|Cannot allocate memory|MemoryError",
    ),
    Symptom(
        "no GPU",
        "`no NVIDIA driver`, `not compiled with CUDA` or `invalid device ordinal`",
        "the program wants a GPU that this machine, or this PyTorch, does not have",
        "00_start_here",
        r"Found no NVIDIA driver|not compiled with CUDA|invalid device ordinal"
        r"|No CUDA GPUs are available|no CUDA-capable device",
    ),
    Symptom(
        "busy GPU",
        "`CUDA-capable device(s) is/are busy or unavailable`",
        "another process has this GPU for itself",
        "00_start_here",
        r"busy or unavailable",
    ),
    Symptom(
        "shared GPU",
        "`Duplicate GPU detected`",
        "two ranks of one NCCL group are on one GPU: use gloo, or fewer ranks",
        "00_start_here",
        r"Duplicate GPU detected",
    ),
    Symptom(
        "disk full",
        "`No space left on device`",
        "the disk is full",
        "04_checkpointing",
        r"No space left on device|Disk quota exceeded|Errno 28\b",
    ),
    Symptom(
        "read-only",
        "`Read-only file system` or `Permission denied`",
        "the program may not write to this file or folder",
        "04_checkpointing",
        r"Read-only file system|PermissionError",
    ),
    Symptom(
        "damaged file",
        "`failed finding central directory`, `unexpected EOF` or `Ran out of input`",
        "the file is truncated, or is no checkpoint",
        "04_checkpointing",
        r"PytorchStreamReader failed|unexpected EOF|Ran out of input"
        r"|invalid load key|unpickling stack underflow",
    ),
    Symptom(
        "another checkpoint",
        "`Error(s) in loading state_dict`",
        "the checkpoint is of another model, or its keys still begin with `module.`",
        "04_checkpointing",
        r"Error\(s\) in loading state_dict",
    ),
]
BY_NAME = {symptom.name: symptom for symptom in SYMPTOMS}


def find(message: str) -> Symptom | None:
    """Return the first symptom whose pattern matches `message`."""
    for symptom in SYMPTOMS:
        if symptom.pattern and re.search(symptom.pattern, message):
            return symptom
    return None


def table() -> str:
    """Return the troubleshooting table of the README, in Markdown."""
    rows = ["| You see | It means | Lesson |", "|---|---|---|"]
    for symptom in SYMPTOMS:
        number = int(symptom.lesson[:2])
        link = f"[{number}](notebooks/{symptom.lesson}.ipynb)"
        rows.append(f"| {symptom.looks} | {symptom.means} | {link} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
