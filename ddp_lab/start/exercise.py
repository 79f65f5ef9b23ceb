"""Exercise: share a list out among the ranks, nothing lost and nothing twice.

    torchrun --standalone --nproc-per-node 2 ddp_lab/start/exercise.py

Once `my_share` is written, two ranks print:

    [rank 0] my share is [0, 1, 2, 3, 4, 5]
    [rank 1] my share is [6, 7, 8, 9, 10]

Written by notebooks/00_start_here.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

ITEMS = list(range(11))  # neither 2 nor 3 nor 4 divides 11


def my_share(items, rank, world_size):
    """Return the part of the list `items` that belongs to this rank, as a list.

    Shares are consecutive: rank 0 has the first items, rank 1 the next, and so on.
    Their lengths differ by one at most, and the longer ones come first. So 11 items
    make shares of 6 and 5 on two ranks, of 4, 4 and 3 on three. Put together they
    must be `items` again, and so add up to 55.
    """
    return None  # your code here


@record
def main():
    with process_group() as (rank, world_size, _):
        share = my_share(ITEMS, rank, world_size)
        shares = [None] * world_size
        # Every rank ends with the list of all shares, so all come to one verdict.
        dist.all_gather_object(shares, share)
        if all(other is None for other in shares):
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            return
        pieces = [list(other or []) for other in shares]  # a rank may have none
        whole = sum(pieces, [])
        lengths = [len(piece) for piece in pieces]
        expected = [len(ITEMS[r::world_size]) for r in range(world_size)]
        if whole != ITEMS or lengths != expected:
            raise AssertionError(f"got {pieces}, expected {expected} items in order")
        print(f"[rank {rank}] my share is {share}", flush=True)
        facts = {"solved": True, "share": share, "total": sum(whole)}
        print(json.dumps(facts), flush=True)


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
