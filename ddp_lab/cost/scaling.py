"""One, two, ... ranks: the same rows shared out, or as many rows for each rank.

    torchrun --standalone --nproc-per-node 4 ddp_lab/cost/scaling.py

    [rank 0] 2 ranks: strong ... ms, weak ... ms

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

RATE = 1e11  # operations a second of the device that each rank plays
CAP = 2**20  # bytes that close a bucket

NETWORKS = {"known": ([512] * 5, 2048)}

SIZES, ROUNDS = [2**k for k in range(14, 23)], 5  # bytes of the sums; how often each


def computing(widths, rows, own=0.0):
    """By layer, its forward's seconds: the device's, and for each weight our own."""
    sizes = [a * b for a, b in pairwise(widths)]
    return [2 * size * rows / RATE + own * size for size in sizes]


def buckets(widths):
    """By layer, last one first: the bytes that leave when its gradient is ready."""
    leaves, held = [], 0
    for a, b in reversed([*pairwise(widths)]):
        held += 4 * a * b
        leaves.append(held if held >= CAP else 0)
        held -= leaves[-1]
    leaves[-1] += held  # what is left goes with the first layer
    return leaves


class Nap(torch.autograd.Function):
    """What takes a device some time, and this machine none."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient, None


def network(widths, rows):
    """Linears that see few rows, and take as long as so many would."""
    torch.manual_seed(0)  # the same weights on every rank
    model = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths)))
    for layer, seconds in zip(model, computing(widths, rows), strict=True):
        layer.register_forward_hook(lambda *seen, s=seconds: Nap.apply(seen[-1], s))
    return model


def clocked(work, device, group):
    """The quickest of some rounds, each as long as its slowest rank, in seconds."""
    seconds = torch.empty(ROUNDS)
    for turn in range(ROUNDS):
        dist.barrier(group)
        start = time.perf_counter()
        work()
        torch.ones((), device=device).item()  # a GPU's host waits here
        seconds[turn] = time.perf_counter() - start
    seconds = seconds.to(device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group)
    return seconds.min().item()


def calibrate(device, group=None):
    """This machine's seconds for each weight, and the α and β of its sums."""
    widths, rows = NETWORKS["known"]
    model, x = network(widths, rows).to(device), torch.ones(4, widths[0], device=device)
    alone = clocked(lambda: model(x).sum().backward(), device, group)
    own = alone / 3 - sum(computing(widths, rows))
    own /= sum(weight.numel() for weight in model.parameters())
    taken = []
    for size in SIZES:
        call = partial(dist.all_reduce, torch.ones(size // 4, device=device))
        taken.append(clocked(partial(call, group=group), device, group))
    x, y = (torch.tensor(each, dtype=torch.float64) for each in (SIZES, taken))
    shares = torch.stack([1 / y, x / y], 1)  # an error counts as a share of the time
    line = torch.linalg.lstsq(shares, torch.ones(len(y), 1).double()).solution
    return max(own, 0.0), *line.clamp(min=0).flatten().tolist()


def noted(state, bucket):
    """DDP's own all_reduce of one bucket; note its bytes."""
    group, sent = state
    sent.append(bucket.buffer().nbytes)
    return allreduce_hook(group, bucket)  # every rank now holds the group's mean


def take_step(widths, rows, rank, device, group=None):
    """A step's seconds under DDP, whose buckets and gradients must be as expected."""
    model = network(widths, rows).to(device)
    x = torch.ones(4, widths[0], device=device) + rank  # rows of its own
    means = torch.autograd.grad(model(x).sum(), [*model.parameters()])
    ddp, sent = DDP(model, process_group=group, bucket_cap_mb=CAP / 2**20), []
    ddp.register_comm_hook((group, sent), noted)

    def step():
        sent.clear()
        ddp.zero_grad()
        ddp(x).sum().backward()

    seconds = clocked(step, device, group)
    if sent != (expected := [size for size in buckets(widths) if size]):
        raise AssertionError(f"buckets of {sent} bytes, expected {expected}")
    for weight, mean in zip(model.parameters(), means, strict=True):
        dist.all_reduce(mean, group=group)  # every rank now holds the sum
        mean /= dist.get_world_size(group)
        torch.testing.assert_close(weight.grad, mean, msg="not the mean of all ranks")
    return seconds


def main(rank, world_size, device):
    widths, rows = NETWORKS["known"]
    facts = {"strong": [], "weak": [], "lines": []}
    for n in range(1, world_size + 1):
        group = dist.new_group(range(n))  # called by all ranks, also by those outside
        if rank < n:
            own, alpha, beta = calibrate(device, group)
            facts["lines"].append([own, alpha, beta])
            for kind, mine in (("strong", rows // n), ("weak", rows)):
                taken = take_step(widths, mine, rank, device, group)
                facts[kind].append(taken)
        dist.barrier()
    if rank == 0:
        for n, times in enumerate(zip(facts["strong"], facts["weak"], strict=True), 1):
            strong, weak = (1000 * seconds for seconds in times)
            told = f"{n} ranks: strong {strong:.0f} ms, weak {weak:.0f} ms"
            print(f"[rank {rank}] {told}", flush=True)
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
