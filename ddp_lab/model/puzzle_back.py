"""Puzzle: gradients go back through stages that each multiply by their weight.

    torchrun --standalone --nproc-per-node 4 ddp_lab/model/puzzle_back.py

Until `back` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/14_model_parallel.ipynb.
"""

import faulthandler
import gc
import json
import math
import os
import secrets
from contextlib import contextmanager

import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 3  # seconds; torch._dynamo, which Diary needs, is imported above


def back(grad, x, weight, left, right):
    """Return the gradient of this stage's weight; a stage computes weight * x.

    grad: (1,), a 1, which is d loss / d out of the last stage; others receive theirs.
    left, right: the neighbors' ranks, or None at the ends.
    """
    return None  # your code here


def goal(rank, weights):
    """What this rank brings and sends, and the gradient of its weight."""
    last, behind = len(weights) - 1, math.prod(weights[rank + 1 :])
    sends = ["send", rank - 1, f"{behind * weights[rank]}"]
    calls = [["recv", rank + 1, ""]] if rank < last else []
    calls += [sends] if rank else []
    x = math.prod(weights[:rank])  # the whole network's input is 1
    return {"calls": [brings(x, weights[rank]), *calls], "holds": [behind * x]}


def brings(x, weight):
    return ["brings", None, f"x {x}, w {weight}"]


class Diary(TorchDispatchMode):
    """Keeps each call of the process group, and tells it before it is made."""

    def __init__(self, first, tells):
        super().__init__()
        self.calls, self.tells = [first], tells

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library:
            name = name.strip("_").removesuffix("_any_source")
            peer = args[2] if name in ("send", "recv") else None
            text = "" if name == "recv" else f"{args[0][0].item():.0f}"
            self.calls.append([name, peer, text])
            if self.tells:
                print(json.dumps({"yours": {"calls": self.calls}}), flush=True)
        return function(*args, **(kwargs or {}))


def attempt(rank, weights, tells):
    """Try the reader's lines; return what all ranks did, and what they should have."""
    target, last = goal(rank, weights), len(weights) - 1
    if tells:
        print(json.dumps({"target": target}), flush=True)
    x = torch.tensor([float(math.prod(weights[:rank]))])
    weight = torch.tensor([float(weights[rank])])
    left, right = (rank - 1 if rank else None), (rank + 1 if rank < last else None)
    # If this rank waits forever, it shows its line, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    with Diary(target["calls"][0], tells) as diary:
        got = back(torch.ones(1), x, weight, left, right)
    holds = None if got is None else [round(float(got))]
    yours = {"calls": diary.calls, "holds": holds}
    if tells and (len(diary.calls) > 1 or got is not None):
        print(json.dumps({"yours": yours}), flush=True)
    results = [None] * len(weights)
    # Every rank now knows what all did, so that all come to one verdict.
    dist.all_gather_object(results, (compared(yours), compared(target)))
    faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
    return zip(*results, strict=True)


def compared(trace):
    """What each rank sends and holds; who receives follows from it."""
    sent = [call for call in trace["calls"][1:] if call[0] != "recv"]
    return sorted(sent), trace["holds"]


def main(rank, world_size, device):
    drawn = [[secrets.randbelow(4) + 2 for _ in range(world_size)]]
    dist.broadcast_object_list(drawn)  # rank 0's numbers are now on all ranks
    shown = [[2, 3, 4, 5][r % 4] for r in range(world_size)]
    for weights in (shown, *drawn):
        results, goals = attempt(rank, weights, tells=weights is shown)
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
