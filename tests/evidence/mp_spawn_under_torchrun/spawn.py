"""As many processes as torchrun is told to start add up their ranks.

    torchrun --standalone --nproc-per-node 2 tests/evidence/mp_spawn_under_torchrun/spawn.py

It is sick. Cured, it prints:

    [rank 0] is one of 2
    [rank 0] the sum of our ranks is 1
    [rank 1] is one of 2
    [rank 1] the sum of our ranks is 1

Its runs are kept in this folder.
"""

import gc
import json
import os
import socket
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.elastic.multiprocessing.errors import record


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def worker(rank, world_size):
    """Be one of the processes."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    print(f"[rank {rank}] is one of {world_size}", flush=True)
    with process_group() as (rank, world_size, device):
        total = torch.tensor([rank], device=device)  # (1,)
        dist.all_reduce(total)  # every rank now holds the sum of all ranks
        print(f"[rank {rank}] the sum of our ranks is {total.item()}", flush=True)
        print(json.dumps({"rank": rank, "total": total.item()}), flush=True)
        expected = world_size * (world_size - 1) // 2
        if total.item() != expected:
            raise AssertionError(f"the sum is {total.item()}, expected {expected}")


@record
def main():
    world_size = int(os.environ["WORLD_SIZE"])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    mp.spawn(worker, args=(world_size,), nprocs=world_size)


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
