"""Four lines make a program distributed: take a device, join, work, leave.

    torchrun --standalone --nproc-per-node 2 ddp_lab/start/join.py

Written by notebooks/00_start_here.ipynb.
"""

import os

import torch
import torch.distributed as dist


def take_device():
    """A GPU for each process of this machine, if there are enough; else the CPU."""
    if torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def work(device):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = torch.tensor(rank + 1, device=device)
    dist.all_reduce(total)  # every rank now holds 1 + 2 + ... + world_size
    print(f"[rank {rank}] of {world_size}, on {device}: total {total}", flush=True)


if __name__ == "__main__":
    device = take_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")  # join
    work(device)
    dist.destroy_process_group()  # leave
