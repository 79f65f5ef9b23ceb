"""Every rank counts the animals in its pictures; then every rank knows the totals.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_10.py

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import os
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PICTURES = (
    "cat owl cat cat dog owl cat cat "
    "owl owl dog cat dog dog owl dog "
    "cat owl dog cat dog cat dog owl"
).split()


def add_up(counts, device):
    """Add the counts of all ranks, animal by animal."""
    totals = {}
    for animal in counts:
        count = torch.tensor(counts[animal], device=device)  # ()
        dist.all_reduce(count)  # every rank now holds the sum of all ranks
        totals[animal] = count.item()
    return dict(sorted(totals.items()))


def main(rank, world_size, device):
    if world_size > 4:
        raise SystemExit("with more than 4 ranks, one sees no owl or no dog")
    counts = Counter(PICTURES[rank::world_size])
    print(f"[rank {rank}] counted {dict(counts)}", flush=True)
    totals = add_up(counts, device)
    print(f"[rank {rank}] all ranks counted {totals}", flush=True)
    expected = dict(sorted(Counter(PICTURES).items()))
    if totals != expected:
        raise AssertionError(f"counted {totals}, expected {expected}")
    return {"totals": totals}


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
