"""The calls of the communication library that PyTorch's flight recorder has kept."""

import os
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

C10D = os.path.join("torch", "distributed", "distributed_c10d.py")
THREADING = os.path.join(os.sep, "threading.py")  # in which a thread begins
LIBRARY = (
    "site-packages",
    "dist-packages",
    os.path.dirname(os.__file__),
    "<frozen",
    str(Path(__file__).parents[2]) + os.sep,
)
"""Parts of the names of files that are not the program's, but a library's or ours."""
# In which DDP sends something, and what.
OF_TORCH = {
    "_engine_run_backward": "gradients, in backward",
    "_sync_buffers": "buffers, in DDP's forward",
    "_sync_module_states": "weights, when DDP is made",
    "_verify_param_shape_across_processes": "shapes, when DDP is made",
}
RECORDERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("_dump_fr_trace", {}),  # of gloo
    ("_dump_nccl_trace", {}),  # of NCCL; from 2.15 on only of "nccl-legacy"
    ("_dump_fr_trace", {"backend": "nccl2"}),  # which is "nccl" from 2.15 on
    ("_dump_fr_trace", {"backend": "nccl-lazy"}),
)
READING = threading.Lock()  # as a rank that ends may be asked for its calls just then


def flight() -> dict:
    """Return {"groups": {name: ranks}, "calls": [...]}; empty without torch."""
    torch: Any = sys.modules.get("torch")
    c10d = sys.modules.get("torch._C._distributed_c10d")
    if torch is None or c10d is None:
        return {"groups": {}, "calls": []}
    import pickle  # which torch has imported, and not every program waits for

    dumps = []
    try:
        with READING, _no_compiled_code(torch):
            for name, which in RECORDERS:
                with suppress(AttributeError, TypeError):  # not in this release
                    dumps.append(getattr(c10d, name)(**which))
            records = [pickle.loads(dump).get("entries", []) for dump in dumps]
        calls = [call for entries in records for call in as_calls(entries)]
        return {"groups": _groups(), "calls": calls}
    except Exception as error:  # another release; or torch is just being imported
        return {"groups": {}, "calls": [], "error": repr(error)}


@contextmanager
def _no_compiled_code(torch: Any) -> Iterator[None]:
    """Spare the dump a look into torch._inductor, slow to import."""
    stub = "_inductor" not in vars(torch)
    if stub:
        torch._inductor = types.SimpleNamespace()
    try:
        yield
    finally:
        if stub:
            del torch._inductor


def as_calls(entries: list[dict]) -> list[dict]:
    """Return the calls of a recorder's entries, without what only ends a batch.

    Over NCCL the calls of a batch are "scheduled" forever; its last entry tells.
    """

    def batch(entry: dict) -> tuple:
        names = ("process_group", "collective_seq_id", "p2p_seq_id", "is_p2p")
        return tuple(str(entry[name]) for name in names)

    def ends(entry: dict) -> bool:
        return entry["profiling_name"].endswith(":coalesced")

    over = {batch(e) for e in entries if ends(e) and e["state"] == "completed"}
    calls = []
    for entry in entries:
        if not ends(entry):
            calls.append(as_call(entry))
            calls[-1]["done"] |= bool(over) and batch(entry) in over
    return calls


def as_call(entry: dict) -> dict:
    """Return the parts of a flight recorder's entry that is read."""
    frames = entry.get("frames", [])
    library = [f["name"] for f in frames if f["filename"].endswith(C10D)]
    own = [
        [frame["filename"], frame["line"], frame["name"]]
        for frame in frames
        if not any(part in frame["filename"] for part in LIBRARY)
    ]
    backend, _, name = entry["profiling_name"].rpartition(":")
    return {
        "name": library[-1] if library else name,
        "does": name,
        "group": entry["process_group"][0],
        "number": entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"],
        "p2p": entry["is_p2p"],
        "part": _part(frames) if not library else "",
        "in_thread": any(f["filename"].endswith(THREADING) for f in frames),
        "shapes": entry["input_sizes"],
        "dtypes": entry["input_dtypes"],
        # These keep no other state; what legacy NCCL retires may have run out of time.
        "done": entry["state"] == "completed"
        or backend in ("gloo", "nccl2", "nccl-lazy")
        and entry.get("retired", False),
        "backend": backend,
        "frames": own,
    }


def _part(frames: list[dict]) -> str:
    """Return what torch sends although the program calls no torch.distributed.

    DDP does so in C++: the frames are those of the line that has led to it.
    """
    for frame in frames:
        if not any(part in frame["filename"] for part in LIBRARY):
            return ""
        if frame["name"] in OF_TORCH:
            return OF_TORCH[frame["name"]]
    return ""


def _groups() -> dict[str, list[int]]:
    """Return the ranks of each process group that is there, by its name."""
    dist: Any = sys.modules.get("torch.distributed")
    if not in_group():
        return {}
    names = dict(dist.distributed_c10d._world.pg_names)
    return {name: dist.get_process_group_ranks(group) for group, name in names.items()}


def in_group() -> bool:
    """Tell whether this process is in a process group now."""
    dist: Any = sys.modules.get("torch.distributed")
    return bool(dist and dist.is_available() and dist.is_initialized())


def has_joined() -> bool:
    """Tell whether this process has ever met others: a group and RPC leave traces."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    method = getattr(c10d, "_default_pg_init_method", None)
    hook = getattr(sys.excepthook, "__name__", "")
    rpc = sys.modules.get("torch.distributed.rpc")
    called = getattr(rpc, "_init_counter", 0) > 0  # by init_rpc
    return (
        in_group() or method is not None or hook == "_distributed_excepthook" or called
    )
