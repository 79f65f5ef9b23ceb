"""Float16 under DDP: gradients that it cannot hold, and a step that all ranks skip.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/fp16.py

A true gradient of about 1e-9, computed in three ways; then one rank overflows:

    [rank 0] bfloat16: gradient ...
    [rank 0] overflow: weights moved by ..., scale 65536 -> ...

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

INPUT, FACTOR = 1e-5, 1e-4  # their product is too small: float16 ends at 6e-8
WAYS = {  # the type of forward and backward, and whether the loss is scaled
    "bfloat16": (torch.bfloat16, False),
    "float16": (torch.float16, False),
    "GradScaler": (torch.float16, True),
    "overflow": (torch.float16, True),
}


def train_step(model, optimizer, scaler, x, dtype):
    """One step in `dtype`; return the gradient as the optimizer would see it."""
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype=dtype):
        loss = (model(x).float() * FACTOR).mean()
    # Multiplied by the scale, gradients survive backward() in float16.
    scaler.scale(loss).backward()  # every rank now holds the mean, times the scale
    scaler.unscale_(optimizer)  # divides the gradients by the scale, in float32
    gradient = model.module.weight.grad.abs().max().item()
    scaler.step(optimizer)  # unless a gradient is infinite or not a number
    scaler.update()  # halves the scale if it was
    return gradient


def compute(way, rank, world_size, device):
    """Make one step in this way, and return what it did to the gradient and weights."""
    dtype, scaled = WAYS[way]
    model = DDP(torch.nn.Linear(4, 1, bias=False).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e6)  # or nothing would move
    scaler = torch.amp.GradScaler(device.type, enabled=scaled)
    x = torch.full((8, 4), INPUT * (rank + 1), device=device)
    if way == "overflow" and rank == world_size - 1:
        x *= 1e9  # one bad batch, on one rank
    before, scale = model.module.weight.detach().clone(), scaler.get_scale()
    gradient = train_step(model, optimizer, scaler, x, dtype)
    moved = (model.module.weight - before).abs().max().item()
    told = f"gradient {gradient:.1e}"
    if way == "overflow":
        scales = f"scale {scale:.0f} -> {scaler.get_scale():.0f}"
        told = f"weights moved by {moved}, {scales}"
    print(f"[rank {rank}] {way}: {told}", flush=True)
    return {"gradient": str(gradient), "moved": moved, "scale": scaler.get_scale()}


def main(rank, world_size, device):
    facts = {way: compute(way, rank, world_size, device) for way in WAYS}
    expected = INPUT * FACTOR * (world_size + 1) / 2  # the mean of all ranks
    for way, lost in {"bfloat16": 0, "float16": 1, "GradScaler": 0}.items():
        off = abs(float(facts[way]["gradient"]) - expected) / expected
        if not abs(off - lost) < 0.02:  # bfloat16 has three digits at best
            got = facts[way]["gradient"]
            raise AssertionError(f"{way}: gradient {got}, expected {expected:.1e}")
    for way, moves in {"GradScaler": True, "overflow": False}.items():
        if (facts[way]["moved"] > 0) != moves:
            raise AssertionError(f"{way}: weights moved by {facts[way]['moved']}")
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
