"""What every harness uses in a rank: inputs, the answer, results, and a count of calls.

    given = inputs()                 # this rank's own, and gone from the disk
    log = traffic()                  # before the answer is imported
    with process_group() as (rank, world_size, device):
        program = answer("ring.py")
        with log:
            ...                      # call the program's functions
        give(result=tensor, sent=log.sent)

torchrun starts the harness with the run's folder as its first argument.
"""

import gc
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import torch.distributed as dist
from npz import save

RUN_FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK"])
COLLECTIVES = ("reduce", "gather", "scatter", "broadcast", "all_to_all", "alltoall")
_given: dict[str, np.ndarray] = {}


@contextmanager
def process_group() -> Iterator[tuple[int, int, torch.device]]:
    """Join the group as the lab's programs do, and leave it whatever happens.

    The device is a GPU if each rank has one to itself (NCCL), else the CPU (gloo).
    """
    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    print("", flush=True)  # a sign of life: from here on the launcher's patience counts
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        if dist.is_initialized():  # the answer may have left it
            dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


def inputs() -> dict:
    """Return this rank's inputs: arrays as numpy arrays, all else as it was.

    The file is removed: after `answer`, no rank can read what another one was given.
    """
    path = RUN_FOLDER / f"inputs_{RANK}.npz"
    with np.load(path) as stored:
        values = {name: stored[name] for name in stored.files}
    path.unlink()
    return {
        name: json.loads(str(value)) if value.dtype.kind == "U" else value
        for name, value in values.items()
    }


def answer(name: str) -> ModuleType:
    """Import the student's file `name`, not as the main program; return the module."""
    if dist.is_initialized():
        dist.barrier()  # by now every rank has taken its inputs
    path = RUN_FOLDER / "answer" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def give(**values: object) -> None:
    """Hand over tensors, arrays or JSON-like values by name; may be called again.

    bfloat16, which numpy does not know, arrives as float32 of the same value.
    """
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().contiguous()
            if value.dtype == torch.bfloat16:
                name, value = f"{name}:bfloat16", value.view(torch.int16)
            value = value.numpy()
        elif isinstance(value, np.ndarray):
            value = value.copy(order="C")
        else:
            value = np.array(json.dumps(value))
        _given[name] = value
    path = RUN_FOLDER / "out" / f"rank_{RANK}.npz"
    part = path.with_suffix(".part")
    save(part, _given)
    part.replace(path)  # never half a file


@dataclass
class Call:
    """One call of the communication library."""

    name: str
    numel: int
    bytes: int
    dtype: str
    at: float
    """When it was issued, by this machine's clock (time.perf_counter)."""


@dataclass
class Traffic:
    """What this rank sends and which collectives it calls while it is open (`with`)."""

    sent: int = 0
    """Bytes sent point to point."""
    received: int = 0
    messages: list[Call] = field(default_factory=list)
    """The sends."""
    collectives: list[Call] = field(default_factory=list)
    open: bool = False

    def __enter__(self) -> "Traffic":
        self.open = True
        return self

    def __exit__(self, *exception: object) -> None:
        self.open = False

    def names(self) -> list[str]:
        """Return the names of the collectives, in order."""
        return [call.name for call in self.collectives]

    def table(self) -> list[list]:
        """Return [name, numel, bytes, dtype, at] of each collective, for `give`."""
        return [[c.name, c.numel, c.bytes, c.dtype, c.at] for c in self.collectives]

    def note(self, name: str, args: tuple) -> None:
        """Keep one call of ProcessGroup's method `name`."""
        tensors = _tensors(args[1]) if len(args) > 1 else []
        # Where a call takes an output and an input, the input comes second.
        tensors = tensors or (_tensors(args[0]) if args else [])
        size = sum(t.numel() * t.element_size() for t in tensors)
        numel = sum(t.numel() for t in tensors)
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        call = Call(name, numel, size, dtype, time.perf_counter())
        if name == "send":
            self.sent += size
            self.messages.append(call)
        elif name.startswith("recv"):
            self.received += size
        else:
            self.collectives.append(call)


def traffic() -> Traffic:
    """Begin to log calls; call it before `answer`, then open it with `with`.

    It looks at the methods of ProcessGroup, below everything that Python code can call
    and above the backends; DDP's own reducer is written in C++ and passes by.
    """
    log = Traffic()
    group = dist.ProcessGroup
    for name in dir(group):
        known = name in ("send", "recv", "recv_anysource", "barrier")
        public = name in ("_allgather_base", "_reduce_scatter_base") or name[0] != "_"
        if known or (public and any(word in name for word in COLLECTIVES)):
            setattr(group, name, _wrapped(getattr(group, name), name, log))
    return log


def _wrapped(method: Callable, name: str, log: Traffic) -> Callable:
    def call(self: dist.ProcessGroup, *args: object, **kwargs: object) -> object:
        if log.open:
            log.note(name, args)
        return method(self, *args, **kwargs)

    # To the launcher, which tells where a rank stands, this is no line of the program.
    call.__code__ = call.__code__.replace(co_filename="<frozen traffic>")
    return call


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []
