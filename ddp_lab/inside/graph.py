"""DDP rebuilt, step 8: weights that are frozen, tied, or not used on every rank.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/graph.py

Written by notebooks/05_inside_ddp.ipynb.
"""

import gc
import json
import math
import os
import time
from contextlib import contextmanager, nullcontext
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

MICRO = 4  # micro-batches in a step


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


def reached(output):
    """The weights that backward() will come to: walk the graph from the output."""
    found, seen, todo = set(), {None}, [output.grad_fn]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [after for after, _ in node.next_functions]
            if hasattr(node, "variable"):  # this node adds to a weight's .grad
                found.add(node.variable)
    return found


class Ours(nn.Module):
    """Our DistributedDataParallel, so far."""

    def __init__(self, module, cap=2**20):
        super().__init__()
        self.module, self.buckets, self.works = module, [], []
        self.syncs = True
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)  # every rank now holds rank 0's
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        while weights:
            self.buckets.append(bucket := Bucket(weights, cap))
            for weight in bucket.views:
                ready = partial(self.ready, bucket)
                weight.register_post_accumulate_grad_hook(ready)

    @contextmanager
    def no_sync(self):
        """Gradients add up here, and stay."""
        self.syncs = False
        try:
            yield
        finally:
            self.syncs = True

    def forward(self, *inputs):
        self.sends = self.syncs  # for the backward() of this forward
        output = self.module(*inputs)
        if self.sends:
            used = reached(output)
            for bucket in self.buckets:
                for weight in bucket.views.keys() - used:
                    self.ready(bucket, weight)  # no hook will say so
        return output

    def ready(self, bucket, weight):
        """backward() has just added up this gradient: put it into its bucket."""
        if not self.sends:
            return
        view = bucket.views[weight]
        if weight.grad is None:
            view.zero_()  # not used on this rank
        else:
            torch.mul(weight.grad, 1 / dist.get_world_size(), out=view)
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
        views = [pair for bucket in self.buckets for pair in bucket.views.items()]
        used = [weight.grad is not None for weight, _ in views]
        used = torch.tensor(used, dtype=torch.int32, device=views[0][0].device)
        dist.all_reduce(used)  # every rank now knows what any rank has used
        for (weight, view), ranks in zip(views, used.tolist(), strict=True):
            weight.grad = view if ranks else None
        for bucket in self.buckets:
            bucket.missing = len(bucket.views)


class Odd(nn.Module):
    """A frozen layer, a tied weight, and three heads, of which two are used."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.two.weight = self.one.weight
        heads = [nn.Linear(WIDTH, n * WIDTH, bias=False) for n in (1, 2, 1)]
        self.heads = nn.ModuleList(heads)

    def forward(self, x):
        hidden = torch.tanh(self.two(torch.tanh(self.one(self.frozen(x)))))
        output = torch.zeros_like(x)
        for head, rows in zip(self.heads, (x[:, 0] > 0, x[:, 0] < 0), strict=False):
            if rows.any():  # each row goes to one head
                output[rows] = head(hidden[rows]).unflatten(1, (-1, WIDTH)).sum(1)
        return output


def network(seed):
    """Weights that are frozen, tied, used on some ranks only, or nowhere."""
    torch.manual_seed(seed)
    return Odd()


def train_step(model, x, y):
    model.zero_grad()
    pairs = zip(x.chunk(MICRO), y.chunk(MICRO), strict=True)
    for turn, (rows, due) in enumerate(pairs):
        quiet = turn < MICRO - 1 and hasattr(model, "no_sync")
        with model.no_sync() if quiet else nullcontext():
            (F.mse_loss(model(rows), due) / MICRO).backward()
    torch.optim.SGD(model.parameters(), RATE).step()


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


CALLS = {"ours": 4 + 1, "torch": 4 + 1}  # in a step: who has used what, besides


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
    odd = torch.arange(len(x), device=device) % world_size % 2 == 1
    odd[-len(x) // MICRO :] ^= True  # in the last micro-batch, ranks change their roles
    x[:, 0] = x[:, 0].abs() * torch.where(odd, -1, 1)
    expected = network(0).to(device)  # one process: rank 0's weights, and all rows
    models = {"ours": Ours(network(rank).to(device))}  # each rank brings its own
    theirs = {"bucket_cap_mb": 1, "find_unused_parameters": True}
    models["torch"] = DDP(network(rank).to(device), **theirs)
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
        trained = [w for w in expected.parameters() if w.requires_grad]
        due = [CALLS[name], sum(w.nbytes + 4 for w in trained)]
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
