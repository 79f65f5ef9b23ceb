"""How long an all_reduce takes between each two ranks, inside a node and across.

    torchrun --standalone --nproc-per-node 4 ddp_lab/nodes/wire.py

On several nodes, with `--nnodes` as well, some pairs are far apart:

    [rank 0] with rank 1 (node 0): ... ms
    [rank 0] with rank 2 (node 1): ... ms

Written by notebooks/10_many_machines.ipynb.
"""

import gc
import json
import os
import statistics
import time
from contextlib import contextmanager
from itertools import combinations

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

NUMBERS = 2**18  # in float32, so a tensor of 1 MB
REPEATS = 3  # that count, after one that does not


def time_pair(group, device):
    """The milliseconds of an all_reduce by two ranks: the median of some repeats."""
    milliseconds = []
    for _ in range(REPEATS + 1):
        buf = torch.full((NUMBERS,), dist.get_rank(group) + 1.0, device=device)
        dist.barrier(group)  # both begin together
        start = time.perf_counter()
        dist.all_reduce(buf, group=group)  # both ranks now hold 1 + 2
        total = buf[-1].item()  # on a GPU, only this waits for it
        milliseconds.append(1000 * (time.perf_counter() - start))
        if total != 3:
            raise AssertionError(f"1 + 2 = {total}")
    return statistics.median(milliseconds[1:])  # the first one connects the two


def time_pairs(rank, world_size, device):
    """By the other's rank, the milliseconds with this one; None for itself."""
    row = [None] * world_size
    for pair in combinations(range(world_size), 2):
        group = dist.new_group(pair)  # called by all ranks, also by those outside
        if rank in pair:
            row[sum(pair) - rank] = time_pair(group, device)
        dist.barrier()  # one pair at a time, or they would share the wire
    return row


@record
def main():
    with process_group() as (rank, world_size, device):
        nodes = [None] * world_size
        dist.all_gather_object(nodes, int(os.environ["GROUP_RANK"]))  # all know all
        row = time_pairs(rank, world_size, device)
        for other, milliseconds in enumerate(row):
            if other != rank:
                pair = f"with rank {other} (node {nodes[other]})"
                print(f"[rank {rank}] {pair}: {milliseconds:.1f} ms", flush=True)
        print(json.dumps({"node": nodes[rank], "milliseconds": row}), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()
