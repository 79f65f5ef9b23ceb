"""Every rank adds up its share of 0 ... 99; one call turns the shares into the total.

    torchrun --standalone --nproc-per-node 2 ddp_lab/start/hello.py

    [rank 0] my 50 numbers add up to ...
    [rank 0] together we have 4950

Written by notebooks/00_start_here.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

COUNT = 100


def add_together(rank, world_size, device):
    """Sum this rank's share of the numbers, then the shares of all ranks."""
    numbers = torch.arange(COUNT, device=device)  # (100,): the same on every rank
    mine = numbers[rank::world_size]  # every world_size-th, from number `rank` on
    share = mine.sum()  # ()
    print(f"[rank {rank}] my {len(mine)} numbers add up to {share}", flush=True)
    total = share.clone()  # all_reduce writes into it
    # A call for the whole group: it ends with the sum of all shares on every rank.
    dist.all_reduce(total)
    print(f"[rank {rank}] together we have {total}", flush=True)
    return {"share": share.item(), "total": total.item()}


def main(rank, world_size, device):
    facts = {"rank": rank, "device": str(device)}
    facts["backend"] = dist.get_backend().rpartition(":")[2]  # that of the device
    facts |= add_together(rank, world_size, device)
    expected = COUNT * (COUNT - 1) // 2  # no process has added them all up
    if facts["total"] != expected:
        raise AssertionError(f"the total is {facts['total']}, expected {expected}")
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
