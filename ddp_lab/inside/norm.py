"""DDP rebuilt, step 10: buffers from rank 0, and BatchNorm over all ranks' samples.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/norm.py

Written by notebooks/11_inside_ddp.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, LAYERS, ROWS, STEPS, RATE = 64, 2, 16, 12, 0.5
SIZE = 8  # bytes of a number: float64 and int64
LAYER = SIZE * WIDTH**2, SIZE * WIDTH  # bytes of its weights, and of its biases
CALLS = {"ours": [*LAYER] * LAYERS, "torch": [sum(LAYER)] * LAYERS}  # in a step


class Ours(nn.Module):
    """Our DistributedDataParallel, so far."""

    def __init__(self, module):
        super().__init__()
        self.module, self.weights = module, list(module.parameters())
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)  # every rank now holds rank 0's

    def forward(self, *inputs):
        for buffer in self.module.buffers():  # BatchNorm's running mean, for one
            dist.broadcast(buffer, src=0)  # every rank now holds rank 0's
        return self.module(*inputs)

    def finish(self):
        """Average the gradients, between backward() and step()."""
        for weight in self.weights:
            dist.all_reduce(weight.grad)  # every rank now holds the sum of all ranks
            weight.grad /= dist.get_world_size()


def network(seed, norm):
    """In float64, so that rounding hides nothing."""
    torch.manual_seed(seed)
    first, last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    return nn.Sequential(first, norm(WIDTH), nn.Tanh(), last).double()


def recorded():
    """This rank's calls so far, as [name, bytes]; the functions are private."""
    calls, recorders = [], [("_dump_fr_trace_json",), ("_dump_nccl_trace_json",)]
    if torch.__version__ >= "2.15":
        recorders.append(("_dump_fr_trace_json", "nccl2"))  # NCCL's, from there on
    for name, *backend in recorders:
        dump = getattr(torch._C._distributed_c10d, name, lambda *_: "{}")
        for call in json.loads(dump(True, False, *backend)).get("entries", []):
            numbers = sum(torch.Size(shape).numel() for shape in call["input_sizes"])
            calls.append([call["profiling_name"].rpartition(":")[2], SIZE * numbers])
    return calls


def measured(train, *given):
    """Train by this function; return the calls that it makes, and its milliseconds."""
    dist.barrier()  # all ranks begin together
    before, start = len(recorded()), time.perf_counter()
    train(*given)
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()  # the host runs ahead
    took = 1000 * (time.perf_counter() - start)
    return recorded()[before:], took


def train_step(model, x, y):
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    if isinstance(model, Ours):
        model.finish()
    torch.optim.SGD(model.parameters(), RATE).step()  # it has nothing to remember


def gradients(module):
    return {name: weight.grad for name, weight in module.named_parameters()}


def check(module, expected):
    """Raise if a gradient, a weight or a buffer is further away than 1e-6."""
    for kind in (gradients, nn.Module.state_dict):
        torch.testing.assert_close(kind(module), kind(expected), atol=1e-6, rtol=0)


class Normalize(torch.autograd.Function):
    """Columns of mean 0 and variance 1, over the samples of all ranks."""

    @staticmethod
    def forward(ctx, x, eps):
        sums = torch.stack([x.sum(0), x.square().sum(0), torch.ones_like(x).sum(0)])
        dist.all_reduce(sums)  # every rank now holds the sums over all samples
        mean, square = sums[:2] / sums[2]
        variance = square - mean.square()
        inverse = (variance + eps).rsqrt()
        normed = (x - mean) * inverse
        ctx.save_for_backward(normed, inverse, sums[2])
        ctx.mark_non_differentiable(mean, variance, sums[2])
        return normed, mean, variance, sums[2]

    @staticmethod
    def backward(ctx, grad, *_):
        normed, inverse, rows = ctx.saved_tensors
        sums = torch.stack([grad.sum(0), (grad * normed).sum(0)])
        dist.all_reduce(sums)  # each sample has moved the mean for all
        a, b = sums / rows
        return inverse * (grad - a - normed * b), None


class SyncNorm(nn.BatchNorm1d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        normed, mean, variance, rows = Normalize.apply(x, self.eps)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * rows / (rows - 1), self.momentum)
        self.num_batches_tracked += 1
        return normed * self.weight + self.bias


def main(rank, world_size, device):
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(2, ROWS * world_size, WIDTH, generator=draw).double().to(device)
    expected = network(0, nn.BatchNorm1d).to(device)  # one process, with all rows
    models = {"synced": Ours(network(rank, SyncNorm).to(device))}
    for name, wrap in {"plain": Ours, "torch": DDP}.items():
        models[name] = wrap(network(rank, nn.BatchNorm1d).to(device))
    facts = {name: [] for name in models}
    for step in range(STEPS):
        train_step(expected, *data)
        for name in sorted(models, reverse=step % 2 == 1):  # each begins in turn
            mine = models[name], *data[:, rank::world_size]
            facts[name].append(measured(train_step, *mine))
        check(models["synced"].module, expected)
        check(models["plain"].module, models["torch"].module)
    for name, steps in facts.items():
        print(f"[rank {rank}] {name}: {len(steps[-1][0])} calls in a step", flush=True)
    return facts


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
