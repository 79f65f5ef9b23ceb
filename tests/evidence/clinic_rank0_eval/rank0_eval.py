"""Train with DDP; after every epoch rank 0 measures the loss on the test samples.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/rank0_eval.py

It is sick. Cured, it prints:

    [rank 0] trains on 24 of 48 samples
    [rank 0] epoch 0: test loss 1.38
    [rank 0] epoch 1: test loss 1.24
    [rank 0] has the weights of all

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

TRAINED, TESTED, BATCH, EPOCHS = 48, 12, 6, 2


def make_data(count, device):
    """Samples of the line y = 2a - b, in batches, the same in every process."""
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, 2, generator=generator)  # (count, 2)
    y = x @ torch.tensor([[2.0], [-1.0]])  # (count, 1)
    return x.to(device), y.to(device)


def batches(x, y):
    return zip(x.split(BATCH), y.split(BATCH), strict=True)


def train(model, optimizer, x, y):
    model.train()
    for inputs, targets in batches(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()  # every rank now holds the mean gradient of all ranks
        optimizer.step()


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    losses = [F.mse_loss(model(inputs), targets) for inputs, targets in batches(x, y)]
    return torch.stack(losses).mean().item()


@record
def main():
    with process_group() as (rank, world_size, device):
        if TRAINED % world_size:
            raise SystemExit(f"{world_size} ranks cannot share {TRAINED} samples")
        x, y = make_data(TRAINED, device)
        x, y = x[rank::world_size], y[rank::world_size]
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        model = DDP(model.to(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        print(f"[rank {rank}] trains on {len(x)} of {TRAINED} samples", flush=True)
        for epoch in range(EPOCHS):
            train(model, optimizer, x, y)
            if rank == 0:
                loss = evaluate(model, *make_data(TESTED, device))
                print(f"[rank 0] epoch {epoch}: test loss {loss:.2f}", flush=True)
        weights = nn.utils.parameters_to_vector(model.parameters()).detach()
        del model  # DDP before its group, or torch up to 2.13 could wait for ever
        expected = weights.clone()
        dist.all_reduce(expected)  # every rank now holds the sum of all ranks
        expected /= world_size
        if not torch.allclose(weights, expected):
            raise AssertionError(f"weights {weights.tolist()} are not those of all")
        print(f"[rank {rank}] has the weights of all", flush=True)
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
