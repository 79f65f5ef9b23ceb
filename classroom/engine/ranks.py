"""What every harness uses in a rank: inputs, the answer, results, and a word outside.

    given = inputs()                 # this rank's own, and gone from the disk
    with process_group() as (rank, world_size, device):
        program = answer("ring.py")
        say("begin")
        ...                          # call the program's functions
        say("end")
        give(result=tensor)

torchrun starts the harness with the run's folder as its first argument. What a rank
says is heard and kept outside while it happens (recorder.py): see `say` and `ask`.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from values import pack, unpack

RUN_FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK"])
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # see mallopt(3)
KEPT_FREE = 65_536  # bytes
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


def compile_nothing(model: Any = None, **options: Any) -> Any:
    """Take the place of torch.compile, while which a rank is silent for too long."""
    return (lambda function: function) if model is None else model


def give_back_at_once() -> None:
    """Have freed memory go back to the system at once, whichever thread has freed it.

    Left alone, glibc keeps twice the largest block that was ever freed, megabytes, at
    the end of each thread's own heap, which malloc_trim does not touch: a process
    would weigh what its threads happen to have had at one time.
    """
    with suppress(OSError, AttributeError):  # another C library
        for setting in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(setting, KEPT_FREE)


def weigh(**facts: object) -> None:
    """Let the judge look up how much memory this process has: "memory" of the event.

    What is free is given back first; see `_memory` in recorder.py. A harness that
    weighs begins with `give_back_at_once`.
    """
    _all_are_here()
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    say("weigh", **facts)
    _heard.readline()


@contextmanager
def process_group() -> Iterator[tuple[int, int, torch.device]]:
    """Join the group as the lab's programs do on CPUs; leave it whatever happens."""
    dist.init_process_group("gloo")
    print("", flush=True)  # a sign of life: from here on the launcher's patience counts
    try:
        yield dist.get_rank(), dist.get_world_size(), torch.device("cpu")
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


def answer(name: str, library: str = "") -> ModuleType:
    """Import the student's file `name`, not as the main program; return the module.

    Args:
        name: of the file.
        library: classes and modules that are the task itself, by name: see `refuse`.
    """
    if dist.is_initialized():
        dist.barrier()  # by now every rank has taken its inputs
    _all_are_here()
    for part in library.split():
        refuse(part)
    torch.compile = compile_nothing
    path = RUN_FOLDER / "answer" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def refuse(library: str) -> None:
    """Let a class of the library, a module or a package say that it is the task itself.

    The classes that are loaded refuse to begin, and what is not loaded to be imported.
    A copy under another name is not known.
    """
    words = f"{library} is the task itself: write your own"

    def refused(*args: object, **kwargs: object) -> None:
        raise RuntimeError(words)

    def find_spec(name: str, *more: object) -> None:
        if f"{name}.".startswith(f"{library}."):
            raise ImportError(words)

    place, _, name = library.rpartition(".")
    classes = [getattr(sys.modules.get(place), name, None)]
    for name, module in [*sys.modules.items()]:
        if f"{name}.".startswith(f"{library}."):
            classes += [c for c in vars(module).values() if _is_of(c, name)]
    for kind in classes:
        if isinstance(kind, type):
            kind.__init__ = refused  # type: ignore[misc]
    sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))


def _is_of(thing: object, module: str) -> bool:
    return getattr(thing, "__module__", "") == module


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


_judge.connect(str(RUN_FOLDER / "recorder"))
_heard = _judge.makefile("rb")
say("hello", rank=RANK)
