"""A step of four micro-batches over a slow wire: fewer messages, and smaller ones.

    torchrun --standalone --nproc-per-node 4 ddp_lab/nodes/cures.py

On several nodes, with `--nnodes` as well, it counts what leaves a node:

    [rank 0] every: ... ms a step, out of node 0: ... times the gradient

Written by notebooks/10_many_machines.ipynb.
"""

import gc
import json
import os
import socket
import statistics
import time
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, MICRO = 512, 4  # 512 x 512 weights make 1 MB of gradient; micro-batches a step
REPEATS = 3  # steps that count, after one that does not
WAYS = {  # whether gradients travel once a step, and whether in 16 bits
    "every": (False, False),
    "once": (True, False),
    "bf16": (False, True),
    "both": (True, True),
}


def make_step(model, micro_batches, once):
    """Leave in .grad the mean over all samples of all ranks."""
    model.zero_grad()
    for turn, (x, weights) in enumerate(micro_batches):
        silent = once and turn < MICRO - 1
        with model.no_sync() if silent else nullcontext():
            loss = (model(x) * weights).sum(1).mean() / MICRO
            loss.backward()  # unless silent, .grad is now the mean over all ranks
    return model.module.weight.grad


def in_16_bits(_, bucket):
    """DDP's all_reduce of one bucket: rounded to bfloat16, averaged, and back."""
    # By its own name, DDP refused the hook on CPUs up to torch 2.13.
    return bf16_compress_hook(None, bucket)  # every rank now holds the mean of all


def make_data(world_size):
    """By rank and micro-batch: 8 samples, and the weights of their outputs."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, world_size, MICRO, 8, WIDTH, generator=generator)


def exact(x, weights):
    """The gradient of all samples in one process, by formula and in 64 bits."""
    x, weights = (t.flatten(0, 2).double() for t in (x, weights))  # (samples, 512)
    return weights.T @ x / len(x)


def bytes_sent():
    """What has left this node so far, as its network cards count; None: nobody does."""
    try:
        with open("/proc/net/dev") as file:
            rows = [line.split(":") for line in file if ":" in line]
    except OSError:  # not Linux
        return None
    cards = {name.strip(): counts.split() for name, counts in rows}
    return sum(int(counts[8]) for name, counts in cards.items() if name != "lo")


def measure(way, data, rank, device):
    """A step's milliseconds, gradients sent out of this node, and gradient."""
    (once, short), times, sent = WAYS[way], [], []
    model = DDP(torch.nn.Linear(WIDTH, WIDTH, bias=False).to(device))
    if short:
        model.register_comm_hook(None, in_16_bits)
    micro_batches = list(zip(*data[:, rank].to(device), strict=True))
    for _ in range(REPEATS + 1):
        before = bytes_sent() or 0
        dist.barrier()  # all begin together, and nobody before all have looked
        start = time.perf_counter()
        gradient = make_step(model, micro_batches, once).double().cpu()
        times.append(1000 * (time.perf_counter() - start))
        dist.barrier()  # the others' messages count as well
        sent.append(((bytes_sent() or 0) - before) / (4 * WIDTH**2))
    return statistics.median(times[1:]), statistics.median(sent[1:]), gradient


@record
def main():
    with process_group() as (rank, world_size, device):
        data, facts = make_data(world_size), {}
        truth, places = exact(*data), [None] * world_size
        own = int(os.environ["GROUP_RANK"]), socket.gethostname()
        dist.all_gather_object(places, own)  # every rank now holds node and host of all
        nodes, hosts = ([place[i] for place in places] for i in (0, 1))
        # Nodes that are played on one machine may share its network, and its counters.
        counted = 1 < len(set(nodes)) == len(set(hosts)) and bytes_sent() is not None
        for way, (_, short) in WAYS.items():
            milliseconds, sent, gradient = measure(way, data, rank, device)
            off = ((gradient - truth).norm() / truth.norm()).item()
            out = f"{sent:.2f} times the gradient" if counted else "not counted"
            told = f"{milliseconds:.0f} ms a step, out of node {own[0]}: {out}"
            print(f"[rank {rank}] {way}: {told}", flush=True)
            if off > (1e-2 if short else 1e-5):  # bfloat16 has 8 bits of a number
                raise AssertionError(f"{way}: the gradient is off by {off:.1e}")
            facts[way] = {"milliseconds": milliseconds, "off": off}
            facts[way]["sent"] = sent if counted else None
        print(json.dumps(facts | {"node": own[0]}), flush=True)


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
