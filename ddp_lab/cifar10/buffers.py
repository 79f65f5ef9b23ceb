"""DDP and BatchNorm: which forward passes of a wrapped network talk to other ranks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/buffers.py

Before each pass every rank writes 100 times its rank into BatchNorm's counter:

    [rank 1] train: 100 became ...

Written by notebooks/07_cifar10_resnet.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

PASSES = ["train", "test", "test again", "train after that", "test the inside"]


def network():
    """Return a small network with one BatchNorm, which counts its training batches."""
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 10))


def forward(name, ddp, images):
    """Run one pass, and backward where it trains."""
    if name.startswith("train"):
        ddp.train()
        ddp(images).sum().backward()
        return
    ddp.eval()
    model = ddp.module if name == "test the inside" else ddp
    with torch.no_grad():
        model(images)


def expected_counters(rank):
    """What each pass leaves in the counter: of rank 0's value, or of this rank's."""
    own = 100 * rank
    # Who tests without gradients is not sent anything at the next forward.
    return dict(zip(PASSES, [0 + 1, 0, own, own + 1, own], strict=True))


@record
def main():
    with process_group() as (rank, _, device):
        torch.manual_seed(rank)  # other images on every rank
        images = torch.randn(8, 3, 32, 32).to(device)
        model = network().to(device)
        ddp = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):  # in the second one DDP also agrees on new buckets
            forward("train", ddp, images)
        counter = model[1].num_batches_tracked  # a buffer: no gradient, not averaged

        found = {}
        for name in PASSES:
            counter.fill_(100 * rank)
            forward(name, ddp, images)
            found[name] = counter.item()
            change = f"{100 * rank} became {found[name]}"
            print(f"[rank {rank}] {name}: {change}", flush=True)
        if found != expected_counters(rank):
            raise AssertionError(f"{found}, expected {expected_counters(rank)}")
        print(json.dumps(found), flush=True)
        del ddp  # before its group, or torch up to 2.13 could wait for ever


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()
