"""Read temperatures that are dealt out to the ranks; every rank learns their mean.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_4.py

Written by notebooks/08_when_it_hangs.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

READINGS = """
18.5 19.0 19.5 20.0 20.5 21.0 21.5 22.0 21.0 20.0 19.0 18.0
20.5 21,5 20.0 18.5 19.5 22.0 20.0 18.0 21.0 19.0 20.5 19.5
""".split()


def read(text):
    return float(text)


def add_up(texts, device):
    """Add up the readings of all ranks, one of each rank at a time."""
    total = 0.0
    for text in texts:
        buf = torch.tensor([read(text)], device=device)  # (1,)
        dist.all_reduce(buf)  # every rank now holds the sum of all ranks
        total += buf.item()
    return total


def main(rank, world_size, device):
    count, mine = len(READINGS), READINGS[rank::world_size]
    if count % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {count} readings")
    print(f"[rank {rank}] reads {len(mine)} of {count} temperatures", flush=True)
    try:
        mean = add_up(mine, device) / count
        print(f"[rank {rank}] the mean is {mean:.2f}", flush=True)
        if round(mean, 3) != 20:
            raise AssertionError(f"the mean is {mean}, expected 20")
    finally:
        dist.barrier()  # no rank leaves while another one still needs it
        print(f"[rank {rank}] leaves", flush=True)
    return {"mean": mean, "readings": count}


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
