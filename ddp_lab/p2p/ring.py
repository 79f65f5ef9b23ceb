"""A token travels once around the ring of ranks; every rank adds its number to it.

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/ring.py

Rank 0 starts it with the value 0. With two ranks it comes back from rank 1:

    [rank 0] sent 0 to rank 1
    [rank 0] received ... from rank 1

Written by notebooks/01_point_to_point.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def pass_token(rank, world_size, device):
    """Receive the token from the left, send it to the right; return what arrived."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    token = torch.zeros(1, dtype=torch.int64, device=device)  # (1,)
    if rank == 0:
        # One rank has to send first: if all began with recv, all would wait.
        dist.send(token, dst=right)
        print(f"[rank {rank}] sent {token.item()} to rank {right}", flush=True)
    dist.recv(token, src=left)  # this rank now holds 0 + 1 + ... + left
    arrived = token.item()
    print(f"[rank {rank}] received {arrived} from rank {left}", flush=True)
    if rank != 0:
        dist.send(token + rank, dst=right)
        print(f"[rank {rank}] sent {arrived + rank} to rank {right}", flush=True)
    return arrived


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    arrived = pass_token(rank, world_size, device)
    expected = sum(range(rank or world_size))  # back at rank 0, it holds all numbers
    if arrived != expected:
        raise AssertionError(f"the token is {arrived}, expected {expected}")
    return {"arrived": arrived, "expected": expected}


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
