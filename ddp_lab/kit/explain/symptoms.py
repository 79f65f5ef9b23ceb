"""The known ways in which a distributed program goes wrong, and what each one means."""

import re
import signal
from enum import Enum

from ddp_lab.kit.record.rank_log import CRASHES


class Symptom(str, Enum):
    """One way to go wrong. Its value is its name, as learners type and read it."""

    means: str
    """The cause in one sentence."""
    pattern: str
    """Matches the messages of PyTorch and of the system that belong to it."""

    def __new__(cls, name: str, means: str, pattern: str = "") -> "Symptom":
        member = str.__new__(cls, name)
        member._value_, member.means, member.pattern = name, means, pattern
        return member

    __str__ = str.__str__
    __repr__ = str.__repr__

    ABSENT = (
        "absent",
        "a rank that the others wait for is elsewhere, or has left",
        r"Timed out waiting \d+ms|Watchdog caught collective operation timeout"
        r"|Operation timed out after \d+ ms|Aborting process due to timeout"
        r"|failed to pass monitoredBarrier",
    )
    DIFFERENT_CALLS = (
        "different calls",
        "the ranks make different calls, or the same ones in another order",
        r"Detected mismatch between collectives",
    )
    DIFFERENT_TENSORS = (
        "different tensors",
        "the ranks bring tensors of different shapes or dtypes to one call",
        r"op\.preamble\.length|tensor shapes? (must be|mismatch)|do not match across",
    )
    CYCLE = (
        "cycle",
        "each rank waits for another one in a circle, so nobody can be the first",
    )
    BUSY = (
        "busy",
        "a loop without an end, or work that takes longer than the run may be silent",
    )
    VICTIM = (
        "victim",
        "another rank has gone: look for what that one said",
        r"Connection (closed|reset) by peer|Broken pipe|Socket closed"
        r"|(eof|closed) \(this error originated at tensorpipe/",
    )
    LATE_CALL = (
        "late call",
        "the worker that was called had no answer in time: it works, waits, or has no "
        "thread left for the call",
        r"RPC ran for more than set timeout",
    )
    KILLED = (
        "killed",
        "usually the system has run out of memory and has chosen this process",
        r"SIGKILL",
    )
    CRASH = (
        "crash",
        "native code has crashed, or found something wrong; SIGBUS: a full /dev/shm",
        r"SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL",
    )
    NO_LAUNCHER = (
        "no launcher",
        "the program was started by python, not by torchrun, or has removed what "
        "torchrun tells it",
        r"environment variable \w+ expected, but not set",
    )
    PORT_TAKEN = (
        "port taken",
        "another process listens at this port: start with `--standalone`, and let the "
        "system choose one",
        r"EADDRINUSE|[Aa]ddress already in use",
    )
    STATIC_GRAPH = (
        "static graph",
        "a parameter got no gradient, and `static_graph=True` was told that none ever "
        "changes: take `find_unused_parameters=True` instead, or use every output in "
        "the loss",
        r"not compatible with static_graph set to True",
    )
    UNUSED_PARAMETERS = (
        "unused parameters",
        "a parameter got no gradient, and DDP still waits for it: "
        "`find_unused_parameters=True`, or use every parameter in each step",
        r"Expected to have finished reduction in the prior iteration",
    )
    READY_TWICE = (
        "ready twice",
        "a parameter got its gradient twice in one backward: checkpoint with "
        "`use_reentrant=False`, or use each parameter in one `forward` of DDP",
        r"mark a variable ready only once|marked as ready twice",
    )
    GROUPS = (
        "groups",
        "every rank has to call `new_group`, even one that will not be a member",
    )
    RENDEZVOUS = (
        "rendezvous",
        "the ranks do not meet at one address and port: nothing listens there, or "
        "another job does",
        r"RendezvousConnectionError|The connection to the C10d store has failed",
    )
    NETWORK = (
        "network",
        "this node has no such interface, or does not reach the others: "
        "`GLOO_SOCKET_IFNAME`, a cable, a firewall, or an address that each machine "
        "takes for its own",
        r"Unable to find (address|interface) for",
    )
    WORLD_IN_A_WORLD = (
        "world in a world",
        "`mp.spawn` under torchrun: both start the ranks, choose one",
    )
    PLAIN_TENSOR = (
        "plain tensor",
        "a sharded parameter met a plain tensor: call the model itself, name another "
        "method to `register_fsdp_forward_method`, or distribute the tensor",
        r"got mixed torch\.Tensor and DTensor",
    )
    TWO_MESHES = (
        "two meshes",
        "DTensors of different meshes met in one operation: handle the parameters of "
        "each mesh by themselves, or make a plain tensor by `full_tensor()`",
        r"on inputs with different meshes|must have the same mesh",
    )
    NOT_IMPORTABLE = (
        "not importable",
        "what a new process runs, it imports by name: move the function or class out "
        "of the function that defines it, and replace a lambda",
        r"Can't (pickle|get) local object",
    )
    CUDA_MEMORY = (
        "CUDA memory",
        "this GPU has no room for what this rank asks for",
        r"CUDA out of memory|CUDA error: out of memory",
    )
    MEMORY = (
        "memory",
        "this rank gets no more memory: the machine's is used up, or limited, or it "
        "asks for too much",
        r"can't allocate memory|Cannot allocate memory|MemoryError",
    )
    NO_GPU = (
        "no GPU",
        "the program wants a GPU that this machine, or this PyTorch, does not have",
        r"Found no NVIDIA driver|not compiled with CUDA|invalid device ordinal"
        r"|No CUDA GPUs are available|no CUDA-capable device",
    )
    NCCL_WITHOUT_GPU = (
        "NCCL without GPUs",
        "NCCL needs a GPU for each rank of a machine: if `torch.cuda.device_count()` "
        "is less than `LOCAL_WORLD_SIZE`, use gloo",
        r"NCCL is only supported with GPUs|NCCL built in|requires at least one CUDA",
    )
    BUSY_GPU = (
        "busy GPU",
        "another process has this GPU for itself",
        r"busy or unavailable",
    )
    SHARED_GPU = (
        "shared GPU",
        "two ranks of one NCCL group are on one GPU: use gloo, or fewer ranks",
        r"Duplicate GPU detected",
    )
    NO_KEYBOARD = (
        "no keyboard",
        "here a rank has no keyboard: print instead, or use plain `torchrun` in a "
        "terminal and stop one rank, `if rank == 0: breakpoint()`",
        r"BdbQuit|EOF when reading a line",
    )
    OPEN_FILES = (
        "too many open files",
        "more files and connections are open than `ulimit -n` allows: raise it, or "
        "close some",
        r"EMFILE|[Tt]oo many open files|Errno 24\b|Failed to init uv loop",
    )
    DISK_FULL = (
        "disk full",
        "the disk is full",
        r"No space left on device|Disk quota exceeded|Errno 28\b",
    )
    READ_ONLY = (
        "read-only",
        "the program may not read this file or folder, or not write to it",
        r"Read-only file system|PermissionError",
    )
    FOLDER = (
        "folder",
        "a folder is missing, or another rank has just made it: on each rank "
        "`os.makedirs(folder, exist_ok=True)`",
        r"Parent directory .* does not exist|FileExistsError",
    )
    DAMAGED_FILE = (
        "damaged file",
        "the file is truncated, or is no checkpoint",
        r"PytorchStreamReader failed|unexpected EOF|Ran out of input"
        r"|invalid load key|unpickling stack underflow"
        r"|Weights only load failed\. In PyTorch",  # not: "This file can still be ..."
    )
    ANOTHER_CHECKPOINT = (
        "another checkpoint",
        "the checkpoint is of another model, or its keys still begin with `module.` "
        "(DDP), `_orig_mod.` (torch.compile) or both: strip them, or save the state of "
        "the model inside",
        r"Error\(s\) in loading state_dict",
    )


def find(message: str) -> Symptom | None:
    """Return the first symptom whose pattern matches `message`."""
    for symptom in Symptom:
        if symptom.pattern and re.search(symptom.pattern, message):
            return symptom
    return None


def of_signal(number: int) -> Symptom | None:
    """Return the symptom of a process that this signal has ended."""
    if number == signal.SIGKILL:
        return Symptom.KILLED
    return Symptom.CRASH if number in CRASHES else None
