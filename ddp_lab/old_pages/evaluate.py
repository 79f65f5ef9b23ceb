"""All ranks test their share and add up the counts; then training goes on.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/evaluate.py

There are 99 test images, which few numbers of ranks divide:

    [rank 0] epoch 0: ... of 99 right

Written by notebooks/15_what_old_pages_say.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

EPOCHS, TEST = 2, 99


def network():
    """A small network with BatchNorm, whose buffers DDP broadcasts before a forward."""
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def test_set(device):
    """The same 99 images, and their labels, on every rank."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(TEST, 4, generator=generator)
    labels = images.sum(1) > 0
    return images.to(device), labels.long().to(device)


def count_right(model, images, labels):
    """How many of the images `model` gets right, in batches of ten."""
    pairs = zip(images.split(10), labels.split(10), strict=True)
    return sum((model(x).argmax(1) == y).sum().item() for x, y in pairs)


def evaluate(ddp, images, labels, rank):
    """Right answers over all test images: every rank tests each world_size-th one."""
    share = slice(rank, None, dist.get_world_size())  # no image twice, unlike a sampler
    ddp.eval()
    right = count_right(ddp.module, images[share], labels[share])
    total = torch.tensor(right, device=images.device)
    dist.all_reduce(total)  # every rank now holds the count of all test images
    return total.item()


def train(ddp, optimizer, rank, device):
    """Ten steps, on batches of this rank's own."""
    ddp.train()
    torch.manual_seed(1 + rank)
    for _ in range(10):
        images = torch.randn(32, 4, device=device)
        labels = (images.sum(1) > 0).long()
        loss = nn.functional.cross_entropy(ddp(images), labels)
        optimizer.zero_grad()
        loss.backward()  # every rank now holds the mean of all ranks' gradients
        optimizer.step()
    for buffer in ddp.module.buffers():
        dist.broadcast(buffer, src=0)  # every rank now holds rank 0's running averages


@record
def main():
    with process_group() as (rank, _, device):
        torch.manual_seed(0)
        images, labels = test_set(device)
        ddp = DDP(network().to(device))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
        rights = []
        for epoch in range(EPOCHS + 1):  # the last round only tests
            with torch.no_grad():
                right = evaluate(ddp, images, labels, rank)
                expected = count_right(ddp.module.eval(), images, labels)  # alone
            print(f"[rank {rank}] epoch {epoch}: {right} of {TEST} right", flush=True)
            if right != expected:
                raise AssertionError(f"{right} right, expected {expected}")
            rights.append(right)
            if epoch < EPOCHS:
                train(ddp, optimizer, rank, device)
        if rights[-1] < 0.8 * TEST:
            raise AssertionError(f"learned nothing: {rights}")
        print(json.dumps({"right": rights}), flush=True)
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
