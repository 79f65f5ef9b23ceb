"""The processes find each other, and add up their ranks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/port.py

It is sick. Cured, it prints:

    [rank 0] looks for the others
    [rank 0] the sum of our ranks is 1
    [rank 1] looks for the others
    [rank 1] the sum of our ranks is 1

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    print(f"[rank {os.environ['RANK']}] looks for the others", flush=True)
    with process_group() as (rank, world_size, device):
        total = torch.tensor([rank], device=device)  # (1,)
        dist.all_reduce(total)  # every rank now holds the sum of all ranks
        print(f"[rank {rank}] the sum of our ranks is {total.item()}", flush=True)
        print(json.dumps({"rank": rank, "total": total.item()}), flush=True)
        expected = world_size * (world_size - 1) // 2
        if total.item() != expected:
            raise AssertionError(f"the sum is {total.item()}, expected {expected}")


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
