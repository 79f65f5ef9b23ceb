"""Ranks share a disk of numbers; their sum travels while each still searches.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_11.py

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

COUNT, SLOWNESS = 100, 0.3


def load(rank, world_size, device):
    """Load this rank's numbers, once the rank before it has handed on the disk."""
    if rank > 0:
        dist.recv(torch.empty(1), src=rank - 1)  # this rank now holds the disk
    time.sleep(SLOWNESS)
    return torch.arange(COUNT, device=device)[rank::world_size]  # (100 / world_size,)


def search(rank, world_size, numbers):
    """Find the largest number, which takes the disk again; then hand on the disk."""
    largest = numbers.max().item()
    if rank < world_size - 1:
        dist.send(torch.empty(1), dst=rank + 1)  # the next rank now holds the disk
    return largest


def add_up(rank, world_size, numbers):
    """Return the sum over all ranks; look for the largest number in the meantime."""
    total = numbers.sum()  # ()
    dist.all_reduce(total, async_op=True)  # the sum travels meanwhile
    largest = search(rank, world_size, numbers)
    at = f"[rank {rank}]"
    print(f"{at} loaded {len(numbers)} numbers, the largest is {largest}", flush=True)
    return total.item()


def main(rank, world_size, device):
    numbers = load(rank, world_size, device)
    mean = add_up(rank, world_size, numbers) / COUNT
    print(f"[rank {rank}] the mean of all {COUNT} is {mean:.2f}", flush=True)
    expected = (COUNT - 1) / 2
    if mean != expected:
        raise AssertionError(f"the mean is {mean}, expected {expected}")
    return {"mean": mean}


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
