"""Train with DDP on every one of 25 samples, in batches of two.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/uneven_batches.py

It is sick. Cured, it prints:

    [rank 0] trains on 13 samples, the last is sample 24
    [rank 0] has the weights of rank 0

The other ranks print two such lines each.

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES, BATCH = 25, 2


def make_data(device):
    """All the samples of the line y = 2a - b, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 2, generator=generator)  # (25, 2)
    y = x @ torch.tensor([[2.0], [-1.0]])  # (25, 1)
    return x.to(device), y.to(device)


def train(model, x, y):
    """One epoch over the samples of this rank."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in zip(x.split(BATCH), y.split(BATCH), strict=True):
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()  # every rank now holds the mean gradient of all ranks
        optimizer.step()


@record
def main():
    with process_group() as (rank, world_size, device):
        mine = range(rank, SAMPLES, world_size)
        count, last = len(mine), mine[-1]
        at = f"[rank {rank}]"
        x, y = make_data(device)
        model = DDP(nn.Linear(2, 1).to(device))
        print(f"{at} trains on {count} samples, the last is sample {last}", flush=True)
        train(model, x[mine], y[mine])
        weights = nn.utils.parameters_to_vector(model.parameters()).detach()
        del model  # DDP before its group, or torch up to 2.13 could wait for ever
        expected = weights.clone()
        dist.broadcast(expected, src=0)  # every rank now holds the weights of rank 0
        if not torch.allclose(weights, expected):
            raise AssertionError(f"{weights.tolist()}, expected {expected.tolist()}")
        print(f"{at} has the weights of rank 0", flush=True)
        print(json.dumps({"weights": weights.tolist()}), flush=True)


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
