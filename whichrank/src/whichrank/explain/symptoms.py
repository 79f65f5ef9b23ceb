"""The known ways in which a distributed program goes wrong, and what each one means."""

import signal
from enum import Enum

from whichrank.record.rank_log import CRASHES
from whichrank.record.torch_words import symptom_of


class Symptom(str, Enum):
    """One way to go wrong. Its value is its name, as learners type and read it."""

    means: str
    """The cause in one sentence."""

    def __new__(cls, name: str, means: str) -> "Symptom":
        member = str.__new__(cls, name)
        member._value_, member.means = name, means
        return member

    __str__ = str.__str__
    __repr__ = str.__repr__

    ABSENT = (
        "absent",
        "a rank that the others wait for is elsewhere, or has left",
    )
    DIFFERENT_CALLS = (
        "different calls",
        "the ranks make different calls, or the same ones in another order",
    )
    DIFFERENT_TENSORS = (
        "different tensors",
        "the ranks bring tensors of different shapes or dtypes to one call",
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
    )
    LATE_CALL = (
        "late call",
        "the worker that was called had no answer in time: it works, waits, or has no "
        "thread left for the call",
    )
    KILLED = (
        "killed",
        "usually the system has run out of memory and has chosen this process",
    )
    CRASH = (
        "crash",
        "native code has crashed, or found something wrong; SIGBUS: a full /dev/shm",
    )
    NO_LAUNCHER = (
        "no launcher",
        "the program was started by python, not by torchrun, or has removed what "
        "torchrun tells it",
    )
    LOCAL_RANK_OPTION = (
        "local rank option",
        "`torch.distributed.launch` passes `--local-rank`, torchrun passes no option; "
        'with both the environment tells: `int(os.environ["LOCAL_RANK"])`',
    )
    PORT_TAKEN = (
        "port taken",
        "another process listens at this port: start with `--standalone`, and let the "
        "system choose one",
    )
    STATIC_GRAPH = (
        "static graph",
        "a parameter got no gradient, and `static_graph=True` was told that none ever "
        "changes: take `find_unused_parameters=True` instead, or use every output in "
        "the loss",
    )
    UNUSED_PARAMETERS = (
        "unused parameters",
        "a parameter got no gradient, and DDP still waits for it: "
        "`find_unused_parameters=True`, or use every parameter in each step",
    )
    READY_TWICE = (
        "ready twice",
        "a parameter got its gradient twice in one backward: checkpoint with "
        "`use_reentrant=False`, or use each parameter in one `forward` of DDP",
    )
    GROUPS = (
        "groups",
        "every rank has to call `new_group`, even one that will not be a member",
    )
    RENDEZVOUS = (
        "rendezvous",
        "the ranks do not meet at one address and port: nothing listens there, another "
        "job does, or the program gives another `rank` or `world_size` than torchrun",
    )
    NETWORK = (
        "network",
        "this node has no such interface, or does not reach the others: "
        "`GLOO_SOCKET_IFNAME`, a cable, a firewall, or an address that each machine "
        "takes for its own",
    )
    WORLD_IN_A_WORLD = (
        "world in a world",
        "`mp.spawn` under torchrun: both start the ranks, choose one",
    )
    PLAIN_TENSOR = (
        "plain tensor",
        "a sharded parameter met a plain tensor: call the model itself, name another "
        "method to `register_fsdp_forward_method`, or distribute the tensor",
    )
    TWO_MESHES = (
        "two meshes",
        "DTensors of different meshes met in one operation: name every module with "
        "weights in the plan, norms too, or make plain tensors by `full_tensor()`",
    )
    NOT_IMPORTABLE = (
        "not importable",
        "what a new process runs, it imports by name: move the function or class out "
        "of the function that defines it, and replace a lambda",
    )
    CUDA_MEMORY = (
        "CUDA memory",
        "this GPU has no room for what this rank asks for",
    )
    MEMORY = (
        "memory",
        "this rank gets no more memory: the machine's is used up, or limited, or it "
        "asks for too much",
    )
    NO_GPU = (
        "no GPU",
        "the program wants a GPU that this machine, or this PyTorch, does not have",
    )
    NCCL_WITHOUT_GPU = (
        "NCCL without GPUs",
        "NCCL needs a GPU for each rank of a machine: if `torch.cuda.device_count()` "
        "is less than `LOCAL_WORLD_SIZE`, use gloo",
    )
    BUSY_GPU = (
        "busy GPU",
        "another process has this GPU for itself",
    )
    SHARED_GPU = (
        "shared GPU",
        "two ranks of one NCCL group are on one GPU: use gloo, or fewer ranks",
    )
    NO_KEYBOARD = (
        "no keyboard",
        "here a rank has no keyboard: print instead, or use plain `torchrun` in a "
        "terminal and stop one rank, `if rank == 0: breakpoint()`",
    )
    OPEN_FILES = (
        "too many open files",
        "more files and connections are open than `ulimit -n` allows: raise it, or "
        "close some",
    )
    DISK_FULL = (
        "disk full",
        "the disk is full",
    )
    READ_ONLY = (
        "read-only",
        "the program may not read this file or folder, or not write to it",
    )
    FOLDER = (
        "folder",
        "a folder is missing, or another rank has just made it: on each rank "
        "`os.makedirs(folder, exist_ok=True)`",
    )
    DAMAGED_FILE = (
        "damaged file",
        "the file is truncated, or is no checkpoint",
    )
    ANOTHER_CHECKPOINT = (
        "another checkpoint",
        "the checkpoint is of another model, or its keys still begin with `module.` "
        "(DDP), `_orig_mod.` (torch.compile) or both: strip them, or save the state of "
        "the model inside",
    )


def in_words(message: str) -> Symptom | None:
    """Return the first symptom to which words of `message` belong."""
    name = symptom_of(message)
    return next((symptom for symptom in Symptom if symptom == name), None)


def of_signal(number: int) -> Symptom | None:
    """Return the symptom of a process that this signal has ended."""
    if number == signal.SIGKILL:
        return Symptom.KILLED
    return Symptom.CRASH if number in CRASHES else None
