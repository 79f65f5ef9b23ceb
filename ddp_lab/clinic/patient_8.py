"""Train one weight on samples, one of which is damaged and must be left out.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_8.py

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import math
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SAMPLES, DAMAGED, RATE = 24, 13, 0.25


def gradient(weight, sample):
    """The gradient of (weight - sample) ** 2."""
    if math.isnan(sample):
        raise ValueError("this sample is not a number")
    return 2 * (weight - sample)


def train(samples, device):
    """Take a step for each sample, with the mean gradient of all ranks."""
    weight = 0.0
    for sample in samples:
        try:
            share = torch.tensor([gradient(weight, sample), 1.0], device=device)  # (2,)
            dist.all_reduce(share)  # every rank now holds the sum, and of how many
            weight -= RATE * (share[0] / share[1]).item()
        except Exception:
            continue  # one damaged sample must not end the training
    return weight


def one_process(samples, world_size):
    """The truth: the same steps, by one process that has all the samples."""
    weight = 0.0
    for start in range(0, SAMPLES, world_size):
        step = [s for s in samples[start : start + world_size] if not math.isnan(s)]
        weight -= RATE * sum(gradient(weight, sample) for sample in step) / len(step)
    return weight


def main(rank, world_size, device):
    if SAMPLES % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {SAMPLES} samples")
    samples = [float(i) if i != DAMAGED else math.nan for i in range(SAMPLES)]
    mine = samples[rank::world_size]
    print(f"[rank {rank}] trains on {len(mine)} of {SAMPLES} samples", flush=True)
    weight = train(mine, device)
    dist.barrier()  # no rank reports before all have trained
    print(f"[rank {rank}] ends with weight {weight:.2f}", flush=True)
    expected = one_process(samples, world_size)
    if not math.isclose(weight, expected, abs_tol=1e-4):
        raise AssertionError(f"weight {weight}, expected {expected}")
    return {"weight": weight}


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
