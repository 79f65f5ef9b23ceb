"""All ranks but the last train one weight; the last one is told, and evaluates it.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_6.py

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

TIMEOUT = timedelta(hours=2)  # an evaluation may take long


def train(weight, sample, group):
    """Move the weight to the mean of the trainers' samples."""
    gradient = weight - sample  # (1,)
    dist.all_reduce(gradient, group=group)  # every trainer now holds the sum
    return weight - gradient / dist.get_world_size(group)


def main(rank, world_size, device):
    trainers = list(range(world_size - 1))
    weight = torch.zeros(1, device=device)
    if rank in trainers:
        print(f"[rank {rank}] is one of the trainers {trainers}", flush=True)
        group = dist.new_group(trainers)
        weight = train(weight, rank + 1.0, group)
    else:
        print(f"[rank {rank}] evaluates what {trainers} learn", flush=True)
    dist.broadcast(weight, src=0)  # every rank now holds the weight of rank 0
    dist.barrier(group=dist.new_group(timeout=TIMEOUT))
    print(f"[rank {rank}] has weight {weight.item()}", flush=True)
    expected = world_size / 2  # the mean of 1, 2, ..., world_size - 1
    if weight.item() != expected:
        raise AssertionError(f"the weight is {weight.item()}, expected {expected}")
    return {"learned": weight.item()}


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
