"""Every rank counts the animals in its pictures; then all know how many there are.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/order.py

It is sick. Cured, it prints:

    [rank 0] counted {'cat': 4, 'dog': 6, 'owl': 2}
    [rank 0] all ranks counted {'cat': 9, 'dog': 8, 'owl': 7}

The other ranks print two such lines each.

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import os
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PICTURES = """
cat owl cat cat dog owl cat cat
owl owl dog cat dog dog owl dog
cat owl dog cat dog cat dog owl
""".split()


def add_up(counts, device):
    """Add the counts of all ranks, animal by animal."""
    totals = {}
    for animal in counts:
        buf = torch.tensor(counts[animal], device=device)  # ()
        dist.all_reduce(buf)  # every rank now holds the sum of all ranks
        totals[animal] = buf.item()
    return dict(sorted(totals.items()))


@record
def main():
    with process_group() as (rank, world_size, device):
        if world_size > 4:
            raise SystemExit("with more than 4 ranks, one sees no owl or no dog")
        counts = Counter(PICTURES[rank::world_size])
        print(f"[rank {rank}] counted {dict(counts)}", flush=True)
        totals = add_up(counts, device)
        print(f"[rank {rank}] all ranks counted {totals}", flush=True)
        print(json.dumps({"totals": totals}), flush=True)
        expected = dict(sorted(Counter(PICTURES).items()))
        if totals != expected:
            raise AssertionError(f"counted {totals}, expected {expected}")


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
