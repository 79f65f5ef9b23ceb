"""A training script for any number of devices, under torchrun; it can resume.

    torchrun --standalone --nproc-per-node 2 ddp_lab/script/train.py

Written by notebooks/04_your_script.ipynb.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

BATCH, RATE, WARM_UP, WIDTH = 48, 6e-3, 20, 64


class Spirals(Dataset):
    """Points in the plane; the label says to which of three spirals each belongs."""

    def __init__(self, size, seed):
        noise = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(3, (size,), generator=noise)
        radius = torch.rand(size, generator=noise)
        blur = 0.3 * torch.randn(size, generator=noise)
        angle = 5 * radius + 2.1 * self.labels + blur
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.points[i], self.labels[i]


def build():
    hidden = [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU(), *hidden, nn.Linear(WIDTH, 3))


@torch.no_grad()
def evaluate(model, loader, device):
    counts = torch.zeros(2, device=device)  # right answers, and all
    for x, y in loader:
        right = (model(x.to(device)).argmax(1) == y.to(device)).sum()
        counts += torch.stack([right, torch.tensor(len(y), device=device)])
    dist.all_reduce(counts)  # every rank now holds the counts of all ranks
    return (counts[0] / counts[1]).item()


def join():
    """Join the other ranks; return the device of this one."""
    local_rank, device = int(os.environ["LOCAL_RANK"]), torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("build/script"))
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    device = join()
    torch.manual_seed(0)
    train, test = Spirals(1200, seed=1), Spirals(501, seed=2)
    sampler = DistributedSampler(train)
    world_size = dist.get_world_size()
    if BATCH % world_size:
        raise SystemExit(f"{world_size} ranks cannot share a batch of {BATCH}")
    loader = DataLoader(train, BATCH // world_size, sampler=sampler)
    rank = dist.get_rank()
    test_loader = DataLoader(Subset(test, range(rank, len(test), world_size)), BATCH)
    model = DDP(build().to(device))  # every rank now holds rank 0's weights
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=WARM_UP)
    start, path = 0, args.output / "checkpoint.pt"
    parts = {"model": model.module, "optimizer": optimizer, "warm_up": warm_up}
    if args.resume:
        saved = torch.load(path, map_location=device)
        start = saved["epoch"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            warm_up.step()
        accuracy = evaluate(model.module, test_loader, device)
        loss = loss.detach() / world_size
        dist.all_reduce(loss)  # every rank now holds the loss of the global batch
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.1%}")
            saved = {name: part.state_dict() for name, part in parts.items()}
            torch.save(saved | {"epoch": epoch + 1}, path)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
