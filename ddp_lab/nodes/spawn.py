"""Without torchrun: one program that starts its ranks itself, with mp.spawn.

    python ddp_lab/nodes/spawn.py --nproc-per-node 2

Each rank gets from its parent what torchrun would have put into the environment:

    [rank 0] started by mp.spawn as one of 2
    [rank 0] gradient 1.5 on all ranks

Written by notebooks/10_many_machines.ipynb.
"""

import argparse
import gc
import json
import os
import socket
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


def worker(rank, world_size, port):
    """Become a rank: first the environment, then as under torchrun."""
    print(f"[rank {rank}] started by mp.spawn as one of {world_size}", flush=True)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),  # one machine, so both are the same
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),  # the ranks meet here; rank 0 listens
    }
    with process_group() as (rank, world_size, device):
        model = DDP(torch.nn.Linear(1, 1, bias=False).to(device))
        # backward() ends with an all_reduce: every rank then holds the mean gradient.
        model(torch.full((1, 1), rank + 1.0, device=device)).sum().backward()
        gradient = model.module.weight.grad.item()  # the mean of 1, 2, ..., world_size
        print(f"[rank {rank}] gradient {gradient:.1f} on all ranks", flush=True)
        print(json.dumps({"rank": rank, "gradient": gradient}), flush=True)
        expected = sum(range(1, world_size + 1)) / world_size
        if abs(gradient - expected) > 1e-6:
            raise AssertionError(f"the gradient is {gradient}, expected {expected}")
        del model  # DDP before its group, or torch up to 2.13 could wait for ever


def free_port():
    """A port that nobody listens on: a fixed one breaks the second job on a machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc-per-node", type=int, default=2)
    world_size = parser.parse_args().nproc_per_node
    if started := os.environ.get("WORLD_SIZE"):
        total = int(started) * world_size
        raise SystemExit(f"use plain python: torchrun makes {total} processes of this")
    # Raises if a rank fails, unlike Process.join(), which leaves that to the reader.
    mp.spawn(worker, args=(world_size, free_port()), nprocs=world_size)


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


# Each rank imports this file anew, and must not spawn again.
if __name__ == "__main__":
    main()
