"""The first job on a new cluster: how fast is each card, and how fast the wire?

    torchrun --standalone --nproc-per-node 2 ddp_lab/nodes/first_job.py

    [rank 0] node 0, local rank 0, on HOST: ... ms
    [rank 0] all_reduce of 4 MB: ... ms, busbw ... GB/s

Written by notebooks/22_many_machines.ipynb.
"""

import gc
import json
import os
import socket
import statistics
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SLOW = 1.5  # times the median of all cards
SMALL = 256, (2**12, 2**18, 2**22)  # side of the matrix, bytes to send: for CPUs
LARGE = 8192, (2**12, 2**20, 2**28)  # for GPUs of their own


def times(work, rounds):
    """Return the seconds of each round."""
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # the host runs ahead of the card
        seconds.append(time.perf_counter() - start)
    return seconds[1:]  # the first round connects and warms up


def card(side, device):
    """Return this card's seconds for a matrix product, and check the product."""
    ones = torch.ones(side, side, device=device)
    # The median: a card that is throttled now and then has fast rounds, too.
    seconds = statistics.median(times(lambda: ones @ ones, rounds=50))
    if not (ones @ ones == side).all():
        raise AssertionError("this card computes wrong numbers")
    return seconds


def wire(size, rank, world_size, device):
    """Return the seconds of an all_reduce of so many bytes, and its busbw in GB/s."""
    numbers = torch.zeros(size // 4, device=device)
    seconds = min(times(lambda: dist.all_reduce(numbers), rounds=3))
    numbers += rank + 1
    dist.all_reduce(numbers)  # every rank now holds 1 + 2 + ... + world_size
    if not (numbers == world_size * (world_size + 1) / 2).all():
        raise AssertionError("the wire changes numbers")
    return seconds, 2 * (world_size - 1) / world_size * size / seconds / 1e9


def main(rank, world_size, device):
    side, sizes = SMALL if dist.get_backend() == "gloo" else LARGE
    place = f"node {os.environ['GROUP_RANK']}, local rank {os.environ['LOCAL_RANK']}"
    mine = f"{place}, on {socket.gethostname()}", card(side, device)
    cards = [None] * world_size
    dist.all_gather_object(cards, mine)  # every rank now has the times of all cards
    usual = statistics.median(seconds for _, seconds in cards)
    slow = [where for where, seconds in cards if seconds > SLOW * usual]
    speeds = [wire(size, rank, world_size, device) for size in sizes]
    if rank == 0:
        for where, seconds in cards:
            mark = "  <-- slow" if where in slow else ""
            print(f"[rank 0] {where}: {1000 * seconds:.1f} ms{mark}", flush=True)
        for size, (seconds, busbw) in zip(sizes, speeds, strict=True):
            told = f"{1000 * seconds:.1f} ms, busbw {busbw:.3f} GB/s"
            name = f"{size // 2**20} MB" if size >= 2**20 else f"{size // 2**10} KB"
            print(f"[rank 0] all_reduce of {name}: {told}", flush=True)
    return {"slow": slow, "busbw": speeds[-1][1]}


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
