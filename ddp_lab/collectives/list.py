"""Gathers a list of tensors one by one, then in one collective.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/list.py

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

COUNT, SIZE = 100, 64  # tensors in each rank's list, numbers in each tensor


def gather_one_by_one(tensors, world_size):
    gathered = []
    for tensor in tensors:
        copies = [torch.empty_like(tensor) for _ in range(world_size)]
        dist.all_gather(copies, tensor)  # every rank now holds all ranks' tensors
        gathered.append(copies)
    return list(zip(*gathered, strict=True))


def gather_in_one(tensors, world_size):
    send_buf = torch.cat(tensors)  # (COUNT * SIZE,)
    recv_buf = send_buf.new_empty(world_size * send_buf.numel())
    dist.all_gather_into_tensor(recv_buf, send_buf)  # every rank now holds all lists
    # chunk makes views: cutting apart copies nothing.
    return [glued.chunk(len(tensors)) for glued in recv_buf.chunk(world_size)]


def main(rank, world_size, device):
    # Host memory everywhere, so over gloo. Tensor i of rank r is full of 1000 r + i.
    tensors, seconds = [torch.full((SIZE,), 1000 * rank + i) for i in range(COUNT)], []
    expected = [
        [[1000 * r + i] * SIZE for i in range(COUNT)] for r in range(world_size)
    ]
    for gather, calls in ((gather_one_by_one, COUNT), (gather_in_one, 1)):
        gather(tensors, world_size)  # a warm-up: a first call may cost more
        dist.barrier()  # all begin together
        start = time.perf_counter()
        lists = gather(tensors, world_size)
        seconds.append(time.perf_counter() - start)
        if [[tensor.tolist() for tensor in one] for one in lists] != expected:
            raise AssertionError(f"{gather.__name__}: not each rank's list, in order")
        told = f"{len(lists)} lists of {COUNT} tensors, collectives: {calls}"
        print(f"[rank {rank}] gathered {told}", flush=True)
    return {"seconds": seconds}


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
