"""DDP rebuilt, step 9: ranks that run out of batches at different times.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/join.py

Written by notebooks/05_inside_ddp.ipynb.
"""

import gc
import json
import math
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._C import _distributed_c10d
from torch.distributed.algorithms.join import Join
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, LAYERS, ROWS, STEPS, RATE = 512, 4, 64, 8, 0.5
BYTES = {"Float": 4, "Double": 8, "Int": 4, "Long": 8, "Byte": 1}

CALLS = {"ours": 1, "torch": LAYERS}  # in a step


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


def recorded():
    """This rank's calls so far, as [name, bytes], from PyTorch's flight recorder."""
    calls = []
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):  # gloo's, NCCL's
        dump = getattr(_distributed_c10d, name, lambda *_: "{}")
        for call in json.loads(dump(True, False)).get("entries", []):
            pairs = zip(call["input_sizes"], call["input_dtypes"], strict=True)
            size = sum(math.prod(shape) * BYTES[dtype] for shape, dtype in pairs)
            calls.append([call["profiling_name"].rpartition(":")[2], size])
    return calls


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


def library(whole, rank, batches, device):
    """The weights after the same training by torch's Join, which averages two ways."""
    model = DDP(network(rank).to(device), bucket_cap_mb=1)
    with Join([model], divide_by_initial_world_size=whole):
        for batch in batches:
            train_step(model, *batch)
    return flat(model.module)  # from a rank that had most batches


def flat(module):
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


def main(rank, world_size, device):
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, STEPS, world_size, ROWS, WIDTH, generator=draw).to(device)
    mine = list(zip(x[:, rank], y[:, rank], strict=True))[: STEPS - rank]
    ours, expected = Ours(network(rank).to(device)), network(0).to(device)
    for step, batch in enumerate(joined(ours, mine, device)):
        before = len(recorded())
        ours.zero_grad()
        if batch is not None:
            F.mse_loss(ours(batch[0]), batch[1]).backward()
        ours.finish()
        torch.optim.SGD(ours.parameters(), RATE).step()
        calls = len(recorded()) - before
        voters = int(ours.voters)  # ranks 0 to voters - 1
        train_step(expected, x[step, :voters].flatten(0, 1), y[step, :voters].flatten(0, 1))
        check(ours.module, expected)
    told = f"{len(mine)} batches, {step + 1} steps, {calls} + 1 calls each"
    print(f"[rank {rank}] {told}", flush=True)
    far = {}
    for whole in (False, True):
        off = library(whole, rank, mine, device) - flat(expected)
        far[whole] = (off.norm() / flat(expected).norm()).item()
        told = "all ranks" if whole else "ranks with a batch"
        print(f"[rank {rank}] torch's Join, by {told}: {far[whole]:.0e} away", flush=True)
    if step != STEPS - 1 or calls != CALLS["ours"] or far[False] > 1e-5 or far[True] < 1e-5:
        raise AssertionError(f"{step + 1} steps, {calls} calls, {far}")
    return {"batches": len(mine), "steps": step + 1, "far": list(far.values())}


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
