"""DDP rebuilt, step 5: gradients leave in buckets, while backward() goes on.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/buckets.py

Written by notebooks/05_inside_ddp.ipynb.
"""

import gc
import json
import math
import os
import time
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._C import _distributed_c10d
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, LAYERS, ROWS, STEPS, RATE = 512, 4, 64, 8, 0.5
BYTES = {"Float": 4, "Double": 8, "Int": 4, "Long": 8, "Byte": 1}


class Bucket:
    """Gradients that travel together, in one row of numbers."""

    def __init__(self, weights, cap):
        mine = []
        while weights and sum(weight.nbytes for weight in mine) < cap:
            mine.append(weights.pop())  # the last one first, as backward() comes by
        sizes = [weight.numel() for weight in mine]
        self.row = mine[0].new_zeros(sum(sizes))
        pieces = zip(mine, self.row.split(sizes), strict=True)
        self.views = {weight: piece.view_as(weight) for weight, piece in pieces}
        self.missing = len(mine)  # gradients that backward() has yet to make


class Ours(nn.Module):
    """Our DistributedDataParallel, so far."""

    def __init__(self, module, cap=2**20):
        super().__init__()
        self.module, self.buckets, self.works = module, [], []
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)  # every rank now holds rank 0's
        weights = list(module.parameters())
        while weights:
            self.buckets.append(bucket := Bucket(weights, cap))
            for weight in bucket.views:
                ready = partial(self.ready, bucket)
                weight.register_post_accumulate_grad_hook(ready)

    def forward(self, *inputs):
        return self.module(*inputs)

    def ready(self, bucket, weight):
        """backward() has just added up this gradient: put it into its bucket."""
        view = bucket.views[weight]
        weight.grad = torch.mul(weight.grad, 1 / dist.get_world_size(), out=view)
        bucket.missing -= 1
        # Full buckets leave in one order, whatever the order in which they fill.
        for bucket in self.buckets[len(self.works) :]:
            if bucket.missing:
                break
            self.works.append(self.send(bucket.row))
            if len(self.works) == len(self.buckets):
                torch.autograd.Variable._execution_engine.queue_callback(self.finish)

    def send(self, row):
        # Once waited for, every rank holds the mean of all ranks.
        return dist.all_reduce(row, async_op=True).get_future()

    def finish(self):
        """backward() calls this before it returns: wait for all buckets."""
        for work in self.works:
            work.wait()
        self.works.clear()
        for bucket in self.buckets:
            bucket.missing = len(bucket.views)


def network(seed):
    """Four layers with a million numbers; the seed decides which."""
    torch.manual_seed(seed)
    pairs = [(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    return nn.Sequential(*(each for pair in pairs for each in pair))


def train_step(model, x, y):
    model.zero_grad()
    F.mse_loss(model(x), y).backward()
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


CALLS = {"ours": LAYERS, "torch": LAYERS}  # in a step


def measured(model, x, y):
    """Make a step; return its calls, and its milliseconds."""
    dist.barrier()  # all ranks begin together
    before, start = len(recorded()), time.perf_counter()
    train_step(model, x, y)
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # the host runs ahead
    return recorded()[before:], 1000 * (time.perf_counter() - start)


def check(module, expected):
    """Raise unless gradients and weights are those of one process, up to rounding."""
    for got, truth in zip(module.parameters(), expected.parameters(), strict=True):
        for a, b in ((got.grad, truth.grad), (got.detach(), truth.detach())):
            if a is not b and (off := (a - b).norm() / b.norm()) > 1e-4:
                raise AssertionError(f"{off:.0%} away from one process")


def main(rank, world_size, device):
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, ROWS * world_size, WIDTH, generator=draw).to(device)
    expected = network(0).to(device)  # one process: rank 0's weights, and all rows
    models = {"ours": Ours(network(rank).to(device))}  # each rank brings its own
    models["torch"] = DDP(network(rank).to(device), bucket_cap_mb=1)
    facts = {name: [] for name in models}
    for step in range(STEPS):
        train_step(expected, x, y)
        for name in sorted(models, reverse=step % 2 == 1):  # each begins in turn
            mine = x[rank::world_size], y[rank::world_size]
            facts[name].append(measured(models[name], *mine))
            check(models[name].module, expected)
    for name, steps in facts.items():
        sizes = [size for _, size in steps[-1][0]]
        told = f"{len(sizes)} calls, {sum(sizes)} bytes a step"
        print(f"[rank {rank}] {name}: {told}", flush=True)
        due = [CALLS[name], sum(w.nbytes for w in expected.parameters())]
        if [len(sizes), sum(sizes)] != due:
            raise AssertionError(f"expected {due[0]} calls, {due[1]} bytes")
    return facts


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
