"""Train with DDP; after every epoch rank 0 measures the loss on the test samples.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_9.py

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


def batches(count, device, rank=0, world_size=1):
    """This rank's share of `count` samples of the line y = 2a - b, in batches."""
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, 2, generator=generator)[rank::world_size].to(device)
    y = x @ torch.tensor([[2.0], [-1.0]], device=device)  # (count / world_size, 1)
    return zip(x.split(BATCH), y.split(BATCH), strict=True)


def train(model, optimizer, samples):
    model.train()
    for inputs, targets in samples:
        model.zero_grad()
        # backward() ends when every rank holds the mean gradient of all ranks.
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, samples):
    model.eval()
    losses = [F.mse_loss(model(inputs), targets) for inputs, targets in samples]
    return torch.stack(losses).mean().item()


def main(rank, world_size, device):
    if TRAINED % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {TRAINED} samples")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model = DDP(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = TRAINED // world_size
    print(f"[rank {rank}] trains on {share} of {TRAINED} samples", flush=True)
    for epoch in range(EPOCHS):
        train(model, optimizer, batches(TRAINED, device, rank, world_size))
        if rank == 0:
            loss = evaluate(model, batches(TESTED, device))
            print(f"[rank 0] epoch {epoch}: test loss {loss:.2f}", flush=True)
    mine = nn.utils.parameters_to_vector(model.parameters()).detach()  # (49,)
    mean = mine / world_size
    dist.all_reduce(mean)  # every rank now holds the mean of all ranks
    if not torch.allclose(mine, mean):
        raise AssertionError(f"weights {mine.tolist()} are not those of all")
    print(f"[rank {rank}] has the weights of all", flush=True)


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
