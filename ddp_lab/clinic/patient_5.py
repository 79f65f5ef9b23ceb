"""Train with DDP on every one of 25 samples, in batches of two.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_5.py

Written by notebooks/09_the_ward.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES, BATCH = 25, 2


def train(model, x, y):
    """One epoch over the samples of this rank; return how many were used."""
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.1), 0
    for inputs, targets in zip(x.split(BATCH), y.split(BATCH), strict=True):
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs.requires_grad_()), targets)
        loss.backward()  # every rank now holds the mean gradient of all ranks
        optimizer.step()
        seen += inputs.grad.count_nonzero().item()  # samples that counted in the loss
    return seen


def main(rank, world_size, device):
    mine = range(rank, SAMPLES, world_size)
    x = torch.linspace(-1, 1, SAMPLES, device=device).view(-1, 1)  # (25, 1)
    y = 2 * x - 1
    model = DDP(nn.Linear(1, 1).to(device))
    print(f"[rank {rank}] trains on {len(mine)} samples", flush=True)
    seen = train(model, x[mine], y[mine])
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    expected = weights.clone()
    dist.broadcast(expected, src=0)  # every rank now holds the weights of rank 0
    if not torch.allclose(weights, expected):
        raise AssertionError(f"{weights.tolist()}, expected {expected.tolist()}")
    print(f"[rank {rank}] has the weights of rank 0", flush=True)
    return {"samples": seen}


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
