"""What every harness uses in a rank: inputs, the answer, results, and a word outside.

    given = inputs()                 # this rank's own, and gone from the disk
    with process_group() as (rank, world_size, device):
        program = answer("ring.py")
        say("begin")
        ...                          # call the program's functions
        say("end")
        give(result=tensor)

torchrun starts the harness with the run's folder as its first argument. What a rank
says, and which calls of the communication library it makes, is heard and kept
outside while it happens (recorder.py): see `say`, `ask` and `say_calls`.
"""

import ctypes
import functools
import gc
import importlib.util
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d
from values import pack, unpack

RUN_FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK"])
CALLS = "reduce", "gather", "scatter", "broadcast", "all", "send", "recv", "barrier"
_OPERATORS = torch.library.Library("c10d", "IMPL")
_given: dict[str, Any] = {}
_judge = socket.socket(socket.AF_UNIX)
_speaking = threading.Lock()


def say(what: str, **facts: object) -> None:
    """Tell the judge at once that something happens: {"what": what, **facts}."""
    line = json.dumps({"what": what, **facts}).encode() + b"\n"
    with _speaking:
        _judge.sendall(line)


def ask(**facts: object) -> Any:
    """Ask the judge, and wait for the answer (`reply` of Rig.run)."""
    _all_are_here()
    line = json.dumps({"what": "ask", **facts}).encode() + b"\n"
    with _speaking:
        _judge.sendall(line)
        return json.loads(_heard.readline())


def weigh(**facts: object) -> None:
    """Let the judge look up how much memory this process has: "memory" of the event.

    What is free is given back first; see `held` in watchdog.py.
    """
    _all_are_here()
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    say("weigh", **facts)
    _heard.readline()


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
    path = RUN_FOLDER / f"inputs_{RANK}"
    values = unpack(path.read_bytes())
    path.unlink()
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            values[name] = value.copy()  # to be written to
    return values


@functools.cache
def _all_are_here() -> None:
    """Wait until all ranks are heard; from then on nobody else is."""
    _heard.readline()


def answer(name: str) -> ModuleType:
    """Import the student's file `name`, not as the main program; return the module."""
    if dist.is_initialized():
        dist.barrier()  # by now every rank has taken its inputs
    _all_are_here()
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
            value = value.detach().cpu()
            value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        if isinstance(value, np.ndarray):
            _given[name] = value.copy()
        else:
            _given[name] = json.loads(json.dumps(value))
    path = RUN_FOLDER / "out" / f"rank_{RANK}"
    part = path.with_suffix(".part")
    part.write_bytes(pack(_given))
    part.replace(path)  # never half a file


# --- calls of the communication library ---


def say_calls() -> list[int]:
    """From now on, say each call: its name, numel, bytes and dtype, as it is issued.

    All ways lead through PyTorch's dispatcher, in whichever thread: the functions of
    torch.distributed, functional collectives, and what is written in C++, such as DDP's
    reducer, which is said as well when it is made. Who calls a backend itself passes
    by, so its methods say it, too.

    Returns:
        A list to which the bytes of each call are appended. It helps to wait for calls
        and is no evidence: a program might change it.
    """
    sizes: list[int] = []

    def call(name: str, args: tuple) -> None:
        """Say one call. Where it takes an output and an input, the input is second."""
        tensors = _tensors(args[1:2]) or _tensors(args[:1])
        if "barrier" in name:
            tensors = []  # PyTorch's own, only to find the way by
        size = sum(t.numel() * t.element_size() for t in tensors)
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        facts = {"numel": sum(t.numel() for t in tensors), "dtype": dtype}
        say("call", name=name.strip("_"), bytes=size, **facts)
        sizes.append(size)

    for operator in torch._C._dispatch_get_all_op_names():
        name = operator.removeprefix("c10d::")
        if name != operator and name != "check_for_nan":
            _wrap_operator(name, functools.partial(call, name))
    for name in vars(_c10d.Backend):
        if any(word in name for word in CALLS):
            _wrap_method(_c10d.Backend, name, functools.partial(call, name))
    _wrap_method(_c10d.Reducer, "__init__", lambda args: call("reducer", ()))
    return sizes


def _wrap_operator(name: str, note: Callable[[tuple], None]) -> None:
    """Call `note` with the arguments whenever c10d's operator `name` is called.

    The dispatcher asks at BackendSelect in any thread and mode, before it goes on to
    the device. From there we go on ourselves, which lets other threads have Python
    meanwhile: gloo's need it to end their work.
    """
    operator = getattr(torch.ops.c10d, name).default

    def call(*args: object, **kwargs: object) -> object:
        note(args)
        device = _tensors(args)[0].device.type
        key = getattr(torch._C.DispatchKey, torch._C._dispatch_key_for_device(device))
        return operator._op_dk(key, *args, **kwargs)

    _OPERATORS.impl(name, _hidden(call), "BackendSelect")


def _wrap_method(kind: type, name: str, note: Callable[[tuple], None]) -> None:
    method = getattr(kind, name)

    def call(self: object, *args: object, **kwargs: object) -> object:
        note(args)
        return method(self, *args, **kwargs)

    setattr(kind, name, _hidden(call))


def _hidden(function: Any) -> Any:
    """Make it no line of the program to the launcher, which tells where a rank is."""
    function.__code__ = function.__code__.replace(co_filename="<frozen recorder>")
    return function


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


_judge.connect(str(RUN_FOLDER / "recorder"))
_heard = _judge.makefile("rb")
say("hello", rank=RANK)
