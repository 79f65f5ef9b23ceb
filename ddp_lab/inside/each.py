"""DDP rebuilt, steps 1 and 2: shared weights, and an all_reduce for each gradient.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/each.py

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

WIDTH, LAYERS, ROWS, STEPS, RATE = 512, 4, 64, 8, 0.5
SIZE = 4  # bytes of a number
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
        return self.module(*inputs)

    def finish(self):
        """Average the gradients, between backward() and step()."""
        for weight in self.weights:
            dist.all_reduce(weight.grad)  # every rank now holds the sum of all ranks
            weight.grad /= dist.get_world_size()


def network(seed):
    """Four layers with a million numbers; the seed decides which."""
    torch.manual_seed(seed)
    pairs = [(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    return nn.Sequential(*(each for pair in pairs for each in pair))


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


def check(module, expected):
    """Raise unless gradients and weights are those of one process, up to rounding."""
    for got, truth in zip(module.parameters(), expected.parameters(), strict=True):
        for a, b in ((got.grad, truth.grad), (got.detach(), truth.detach())):
            if a is not b and not (off := (a - b).norm() / b.norm()) < 1e-4:
                raise AssertionError(f"{off:.0%} away from one process")


def main(rank, world_size, device):
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, ROWS * world_size, WIDTH, generator=draw).to(device)
    expected = network(0).to(device)  # one process: rank 0's weights, and all rows
    ours, its = (network(rank).to(device) for _ in range(2))  # each rank brings its own
    models = {"ours": Ours(ours), "torch": DDP(its, bucket_cap_mb=1)}
    facts = {name: [] for name in models}
    for step in range(STEPS):
        train_step(expected, x, y)
        mine = slice((rank + step) % world_size, None, world_size)  # of all rows
        for name in sorted(models, reverse=step % 2 == 1):  # each begins in turn
            facts[name].append(measured(train_step, models[name], x[mine], y[mine]))
            check(models[name].module, expected)
    for name, steps in facts.items():
        sizes = [size for _, size in steps[-1][0]]
        told = f"{len(sizes)} calls, {sum(sizes)} bytes"
        print(f"[rank {rank}] {name}: {told}", flush=True)
        if sorted(sizes) != sorted(CALLS[name]):
            raise AssertionError(f"expected calls of {CALLS[name]} bytes")
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
