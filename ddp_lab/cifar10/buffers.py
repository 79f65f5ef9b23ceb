"""DDP and BatchNorm: which forward passes of a wrapped network talk to other ranks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/buffers.py

Written by notebooks/07_cifar10_resnet.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

PASSES = ["train", "test", "test again", "train after that", "test the inside"]
PASSES += ["train in no_sync", "train after no_sync"]


def forward(name, ddp, images):
    """Run one pass, and backward where it trains."""
    ddp.train(name.startswith("train"))
    if ddp.training:
        with ddp.no_sync() if name == "train in no_sync" else nullcontext():
            ddp(images).sum().backward()
        return
    with torch.no_grad():
        (ddp.module if name == "test the inside" else ddp)(images)


def main(rank, world_size, device):
    torch.manual_seed(rank)  # other images on every rank
    images, own = torch.randn(8, 3, 32, 32).to(device), 100 * rank
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 10)).to(device)
    ddp = nn.parallel.DistributedDataParallel(model)
    for _ in range(2):  # in the second one DDP also agrees on new buckets
        forward("train", ddp, images)
    found, counter = {}, model[1].num_batches_tracked  # a buffer: not averaged
    for name in PASSES:
        counter.fill_(own)
        forward(name, ddp, images)
        found[name] = counter.item()
        print(f"[rank {rank}] {name}: {own} became {found[name]}", flush=True)
    expected = [1, 0, own, own + 1, own, 1, own + 1]  # without `own`: of rank 0's
    assert list(found.values()) == expected, f"{found}, expected {expected}"
    return found


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
