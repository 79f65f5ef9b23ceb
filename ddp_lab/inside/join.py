"""DDP rebuilt, step 9: ranks that run out of batches at different times.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/join.py

Written by notebooks/05_inside_ddp.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, LAYERS, ROWS, STEPS, RATE = 512, 4, 64, 8, 0.5


class Ours(nn.Module):
    """Our DistributedDataParallel, so far."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)  # every rank now holds rank 0's

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish(self):
        """Average the gradients, between backward() and step()."""
        weights = list(self.module.parameters())
        for weight in weights:
            if weight.grad is None:  # of a rank without a batch, which sends zeros
                weight.grad = torch.zeros_like(weight)
        row = torch.cat([weight.grad.flatten() for weight in weights])
        row /= self.voters
        dist.all_reduce(row)  # every rank now holds the mean of all ranks
        pieces = row.split([weight.numel() for weight in weights])
        for weight, piece in zip(weights, pieces, strict=True):
            weight.grad = piece.view_as(weight)  # no copy: it lies in the row


def network(seed):
    """Four layers with a million numbers; the seed decides which."""
    torch.manual_seed(seed)
    pairs = [(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    return nn.Sequential(*(each for pair in pairs for each in pair))


def train_step(model, x, y):
    model.zero_grad()
    F.mse_loss(model(x), y).backward()
    if isinstance(model, Ours):
        model.finish()
    torch.optim.SGD(model.parameters(), RATE).step()  # it has nothing to remember


def check(module, expected):
    """Raise unless gradients and weights are those of one process, up to rounding."""
    for got, truth in zip(module.parameters(), expected.parameters(), strict=True):
        for a, b in ((got.grad, truth.grad), (got.detach(), truth.detach())):
            if a is not b and (off := (a - b).norm() / b.norm()) > 1e-4:
                raise AssertionError(f"{off:.0%} away from one process")


def joined(model, batches, device):
    """Yield this rank's batches; then None, for as long as another rank has one."""
    batches = iter(batches)
    while True:
        batch = next(batches, None)
        having = torch.tensor(float(batch is not None), device=device)
        dist.all_reduce(having)  # every rank now knows how many have a batch
        if not having:
            return
        model.voters = having.item()
        yield batch


def by_library(model, batches, divides_by_all, expected):
    """How far from one process the same training ends under torch's Join."""
    with Join([model], divide_by_initial_world_size=divides_by_all):
        for batch in batches:
            train_step(model, *batch)
    pairs = zip(model.module.parameters(), expected.parameters(), strict=True)
    return max((ours - its).abs().max().item() for ours, its in pairs)


def main(rank, world_size, device):
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(2, STEPS, world_size, ROWS, WIDTH, generator=draw).to(device)
    mine = list(zip(*data[:, : STEPS - rank, rank], strict=True))  # each has one fewer
    ours, expected = Ours(network(rank).to(device)), network(0).to(device)
    for step, batch in enumerate(joined(ours, mine, device)):
        ours.zero_grad()
        if batch is not None:
            F.mse_loss(ours(batch[0]), batch[1]).backward()
        ours.finish()
        torch.optim.SGD(ours.parameters(), RATE).step()
        train_step(expected, *data[:, step, : int(ours.voters)].flatten(1, 2))
        check(ours.module, expected)
    print(f"[rank {rank}] {len(mine)} batches, {step + 1} steps", flush=True)
    models = [DDP(network(rank).to(device)) for _ in range(2)]
    far = [by_library(models[k], mine, bool(k), expected) for k in range(2)]
    if step + 1 != STEPS or not far[0] < 1e-5 < far[1]:
        raise AssertionError(f"{step + 1} steps; torch's Join is {far} away")
    return {"batches": len(mine), "steps": step + 1, "far": far}


# --- the same in every program: join the group, run main, leave whatever happens ---


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


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
