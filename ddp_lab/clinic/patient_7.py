"""The processes find each other, and add up their ranks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_7.py

Written by notebooks/20_the_ward.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    print(f"[rank {os.environ['RANK']}] looks for the others", flush=True)
    with process_group() as (rank, world_size, device):
        total = torch.tensor(rank, device=device)  # ()
        dist.all_reduce(total)  # every rank now holds the sum of all ranks
        print(f"[rank {rank}] the sum of our ranks is {total}", flush=True)
        print(json.dumps({"total": total.item()}), flush=True)
        expected = sum(range(world_size))
        if total != expected:
            raise AssertionError(f"the sum is {total}, expected {expected}")


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()
