"""Puzzle: rank 0 sends its number to the last rank and gets the double back.

    torchrun --standalone --nproc-per-node 4 ddp_lab/p2p/puzzle_echo.py

Until `echo` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/01_point_to_point.ipynb.
"""

import faulthandler
import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 3  # seconds; torch._dynamo, which Diary needs, is imported above


def echo(mine, rank, last):
    """Rank 0 sends `mine`, of shape (1,), to rank `last` and returns twice that number.

    Rank `last` is the one that doubles it. The others do nothing; all but rank 0 return
    None.
    """
    return None  # your code here


def goal(rank, numbers):
    """What this rank sends and holds in the end."""
    last, number = len(numbers) - 1, numbers[0]
    if rank == 0:
        calls = [["send", last, str(number)], ["recv", last, ""]]
        return {"calls": calls, "holds": [2 * number]}
    calls = [["recv", 0, ""], ["send", 0, str(2 * number)]]
    return {"calls": calls if rank == last else [], "holds": None}


class Diary(TorchDispatchMode):
    """Keeps each call of the process group, and tells it before it is made."""

    def __init__(self, tells):
        super().__init__()
        self.calls, self.tells = [], tells

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library:
            name = name.strip("_").removesuffix("_any_source")
            peer = args[2] if name in ("send", "recv") else None
            text = "" if name == "recv" else str(args[0][0].tolist()).strip("[]")
            self.calls.append([name, peer, text])
            if self.tells:
                print(json.dumps({"yours": {"calls": self.calls}}), flush=True)
        return function(*args, **(kwargs or {}))


def attempt(rank, numbers, tells):
    """Try the reader's lines; return what all ranks did, and what they should have."""
    target = goal(rank, numbers)
    if tells:
        print(json.dumps({"target": target}), flush=True)
    mine = torch.tensor([numbers[rank]])  # (1,)
    # If this rank waits forever, it shows its line, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    with Diary(tells) as diary:
        got = echo(mine, rank, len(numbers) - 1)
    holds = None if got is None else torch.as_tensor(got).flatten().tolist()
    yours = {"calls": diary.calls, "holds": holds}
    if tells:
        print(json.dumps({"yours": yours}), flush=True)
    results = [None] * len(numbers)
    # Every rank now knows what all did, so that all come to one verdict.
    dist.all_gather_object(results, (compared(yours), compared(target)))
    faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
    return zip(*results, strict=True)


def compared(trace):
    """What each rank sends and holds; who receives follows from it."""
    sent = [call for call in trace["calls"] if call[0] != "recv"]
    return sorted(sent), trace["holds"]


def main(rank, world_size, device):
    drawn = [[secrets.randbelow(90) + 10 for _ in range(world_size)]]
    dist.broadcast_object_list(drawn)  # rank 0's numbers are now on all ranks
    shown = [5 + r for r in range(world_size)]
    for numbers in (shown, *drawn):
        results, goals = attempt(rank, numbers, tells=numbers is shown)
        if not any(calls or held for calls, held in results):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if results != goals:
            wrong = [r for r in range(world_size) if results[r] != goals[r]]
            raise AssertionError(f"ranks {wrong} differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend, well = torch.device("cpu"), "gloo", False
    if count := torch.accelerator.device_count():
        kind = torch.accelerator.current_accelerator().type
        index = int(os.environ["LOCAL_RANK"]) % count
        own = dist.get_default_backend_for_device(kind)  # cuda: nccl, xpu: xccl
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]) and own != "gloo":
            backend = f"cpu:gloo,{kind}:{own}"
        if kind == "cuda" or backend != "gloo":  # gloo carries CPU and CUDA tensors
            device = torch.device(kind, index)
            torch.accelerator.set_device_index(index)
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
        well = True
    finally:
        if well or backend == "gloo":  # over NCCL a leaving rank could hang
            dist.destroy_process_group()
            gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
