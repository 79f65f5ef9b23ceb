"""Puzzle: buckets leave in one order on all ranks, whatever the order they fill in.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/puzzle_order.py

Until `leave` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/11_inside_ddp.ipynb.
"""

import faulthandler
import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE = 3  # seconds


def leave(full, left, send):
    """Called after each gradient: send the buckets that may leave now, by send(number).

    full: for each bucket, whether it is full. left: how many have left before.
    """
    return None  # your code here


class Rank:
    """Gets a gradient after the other, and keeps what the reader's lines send."""

    def __init__(self, missing, device, tells):
        self.missing, self.device, self.tells = missing, device, tells
        self.calls, self.holds = [], []

    def send(self, number):
        """The bucket holds its number: so does the mean, if all ranks send it now."""
        self.calls.append(["all_reduce", None, f"bucket {number}"])
        if self.tells:
            print(json.dumps({"yours": {"calls": self.calls}}), flush=True)
        row = torch.tensor(float(number), device=self.device)
        dist.all_reduce(row)  # every rank now holds the sum of all ranks
        self.holds.append(round(row.item() / dist.get_world_size(), 3))

    def gets(self, number):
        """A gradient of this bucket is made: see what the reader's lines do."""
        self.calls.append(["made", None, f"for {number}"])
        self.missing[number] -= 1
        leave([not missing for missing in self.missing], len(self.holds), self.send)


def goal(order):
    """What a rank does whose gradients come in this order, and what it holds."""
    calls, missing, left = [], counts(order), 0
    for number in order:
        calls.append(["made", None, f"for {number}"])
        missing[number] -= 1
        until = next((i for i, n in enumerate(missing) if n), len(missing))
        calls += [["all_reduce", None, f"bucket {i}"] for i in range(left, until)]
        left = until
    return {"calls": calls, "holds": [float(i) for i in range(len(missing))]}


def counts(order):
    """How many gradients fill each bucket."""
    return [order.count(number) for number in range(max(order) + 1)]


def orders(world_size):
    """By rank the buckets of its gradients: first to look at, then some drawn."""
    shown = ([[0, 0, 1], [1, 0, 0]] * world_size)[:world_size]
    gradients, draw = [0, 0, 1, 2, 2, 2, 3], secrets.SystemRandom()
    drawn = [[draw.sample(gradients, 7) for _ in shown] for _ in range(4)]
    drawn.append(([[0, 1, 2], [2, 1, 0]] * world_size)[:world_size])
    dist.broadcast_object_list(drawn)  # rank 0's orders are now on all ranks
    return shown, *drawn


def main(rank, world_size, device):
    for turn, brought in enumerate(orders(world_size)):
        target = goal(brought[rank])
        mine = Rank(counts(brought[rank]), device, tells=turn == 0)
        if turn == 0:
            print(json.dumps({"target": target}), flush=True)
        # If this rank waits forever, it shows its line, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        for number in brought[rank]:
            mine.gets(number)
        yours = {"calls": mine.calls, "holds": mine.holds}
        if turn == 0 and mine.holds:
            print(json.dumps({"yours": yours}), flush=True)
        results = [None] * world_size
        # Every rank now knows what all did, so that all come to one verdict.
        dist.all_gather_object(results, (yours, target))
        faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
        if not any(did["holds"] for did, _ in results):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if wrong := [r for r, (did, due) in enumerate(results) if did != due]:
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
