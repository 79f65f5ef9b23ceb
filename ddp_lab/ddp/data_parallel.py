"""One device, DataParallel and DDP: one training, spread in three ways.

    torchrun --standalone --nproc-per-node 2 ddp_lab/ddp/data_parallel.py

Rank 0 runs the first two alone; under DDP each rank takes its share of the batch:

    [rank 0] one device: this process takes 1920 samples a step
    [rank 0] DDP: this process takes 960 samples a step

Written by notebooks/03_ddp_basics.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DataParallel
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, STEPS = 1920, 10


def train(name, rank, model, x, y):
    """Train; return the seconds of a step, the first one left out."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        if step == 1:
            start = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()  # a GPU works behind the host's back: wait before reading the clock
    seconds = (time.perf_counter() - start) / (STEPS - 1)
    share = f"this process takes {len(x)} samples a step"
    print(f"[rank {rank}] {name}: {share}", flush=True)
    return seconds


def check(name, model, expected):
    """Stop when this way of spreading has trained another model."""
    gap = (flat(model) - expected).abs().max().item()
    if gap > 1e-4:
        raise AssertionError(f"{name} ended {gap:.1e} away from one device")


def make_model(device):
    """The same weights for whoever asks, so that only the spreading differs."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    return torch.nn.Sequential(*layers).to(device)


def make_batch(device):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, 256, generator=generator)  # (1920, 256)
    y = torch.randint(10, (BATCH,), generator=generator)  # (1920,)
    return x.to(device), y.to(device)


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()


@record
def main():
    with process_group() as (rank, world_size, device):
        if BATCH % world_size:
            raise SystemExit(f"{world_size} ranks cannot share {BATCH} samples")
        facts, (x, y) = {}, make_batch(device)
        model = make_model(device)
        if rank == 0:
            facts["one device"] = train("one device", rank, model, x, y)
            # Its every forward copies the model to all GPUs and runs a thread for each.
            parallel = DataParallel(make_model(device))
            facts["GPUs"] = len(parallel.device_ids)  # 0: it only calls the model
            facts["DataParallel"] = train("DataParallel", rank, parallel, x, y)
            check("DataParallel", parallel, flat(model))
        expected = flat(model)
        # Every rank now holds what one device made; until then the others wait here.
        dist.broadcast(expected, src=0)
        ddp_model = DDP(make_model(device))
        x, y = x[rank::world_size], y[rank::world_size]  # (1920 / world_size, ...)
        facts["DDP"] = train("DDP", rank, ddp_model, x, y)
        check("DDP", ddp_model, expected)
        print(json.dumps(facts), flush=True)
        del ddp_model  # before its group, or torch up to 2.13 could wait for ever


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
