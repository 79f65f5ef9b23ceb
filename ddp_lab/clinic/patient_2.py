"""All ranks train one weight together, and rank 0 logs the mean loss of every step.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_2.py

Written by notebooks/08_when_it_hangs.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SAMPLES, STEPS, RATE = 12, 2, 0.25


def train_step(weight, x):
    """Move the weight towards the mean of all samples; return this rank's loss."""
    loss = (weight - x).square().mean()  # ()
    gradient = 2 * (weight - x).mean()  # ()
    dist.all_reduce(gradient)  # every rank now holds the sum of all ranks
    weight -= RATE * gradient / dist.get_world_size()
    return loss


def main(rank, world_size, device):
    if SAMPLES % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {SAMPLES} samples")
    samples = torch.arange(float(SAMPLES), device=device)  # (12,)
    x = samples[rank::world_size]  # (12 / world_size,)
    weight = torch.zeros((), device=device)
    print(f"[rank {rank}] starts with {len(x)} of {SAMPLES} samples", flush=True)
    for step in range(STEPS):
        loss = train_step(weight, x)
        if rank == 0:
            dist.reduce(loss, dst=0)  # rank 0 now holds the sum of all ranks
            mean = loss.item() / world_size
            print(f"[rank 0] step {step}: the mean loss is {mean:.2f}", flush=True)
    print(f"[rank {rank}] ends with weight {weight:.3f}", flush=True)
    # Each step halves what is missing (1 - 2 * RATE), on one process as on many.
    expected = samples.mean() * (1 - (1 - 2 * RATE) ** STEPS)
    if not torch.isclose(weight, expected):
        raise AssertionError(f"the weight is {weight}, expected {expected}")
    return {"weight": weight.item()}


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
