"""Train a line with DDP, and its curved correction in every other step only.

    torchrun --standalone --nproc-per-node 2 tests/evidence/unused_parameters/unused_parameters.py

It is sick. Cured, it prints:

    [rank 0] step 0: line
    [rank 0] step 1: line and correction
    [rank 0] step 2: line
    [rank 0] has the weights of one process that sees all samples

Its runs are kept in this folder.
"""

import copy
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

SAMPLES, STEPS = 24, 3


class Curve(nn.Module):
    """A line, and if asked for a correction that grows with the square of x."""

    def __init__(self):
        super().__init__()
        self.line, self.correction = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x, corrected):
        y = self.line(x)
        return y + self.correction(x.square()) if corrected else y


def train(model, x, y, label=None):
    """Train for some steps; return the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        corrected = step % 2 == 1
        if label:
            part = "line and correction" if corrected else "line"
            print(f"{label} step {step}: {part}", flush=True)
        optimizer.zero_grad()
        F.mse_loss(model(x, corrected), y).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()  # (4,)


@record
def main():
    with process_group() as (rank, world_size, device):
        if SAMPLES % world_size:
            raise SystemExit(f"{world_size} ranks cannot share {SAMPLES} samples")
        x = torch.linspace(-1, 1, SAMPLES, device=device).view(-1, 1)  # (24, 1)
        y = x + x.square()  # (24, 1)
        torch.manual_seed(0)
        curve = Curve().to(device)
        expected = train(copy.deepcopy(curve), x, y)
        mine = slice(rank, None, world_size)
        # DDP ends with train(), before its group, or torch up to 2.13 could hang.
        weights = train(DDP(curve), x[mine], y[mine], label=f"[rank {rank}]")
        if not torch.allclose(weights, expected, atol=1e-5):
            raise AssertionError(f"{weights.tolist()}, expected {expected.tolist()}")
        sees = "one process that sees all samples"
        print(f"[rank {rank}] has the weights of {sees}", flush=True)
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
