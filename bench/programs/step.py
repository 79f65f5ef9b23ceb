"""Record a training step of ddp_lab/cifar10/resnet.py: what runs when, CPU and GPU.

    torchrun --standalone --nproc-per-node 2 step.py TRACE

Rank 0 writes TRACE (.json.gz), which https://ui.perfetto.dev draws: DDP's all_reduce of
the last layers' gradients runs while the first layers are still in their backward pass.
"""

import gzip
import json
import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import profile

from ddp_lab.cifar10 import resnet as lesson

WARM_UP = 10  # steps: cuDNN searches its algorithms, DDP orders its buckets
GPU = torch.cuda.is_available()
BATCH = 512 if GPU else 64


def prepare(device: torch.device) -> Callable[[int], None]:
    """Return a function that trains for so many steps on images of noise."""
    pixels = torch.randint(256, (BATCH, 3, 32, 32), dtype=torch.uint8, device=device)
    labels = torch.randint(10, (BATCH,), device=device)
    images, noise = (lesson.all_windows(pixels), labels), lesson.draw_noise(BATCH, 0)
    model = lesson.resnet(*lesson.NETWORKS.get(device.type, lesson.LARGE)).to(device)
    megabytes = 25 if GPU else 0.05  # the small network would fit into one bucket
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=megabytes)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, 0.9)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)

    def train(steps: int) -> None:
        batches = torch.stack([torch.randperm(BATCH) for _ in range(steps)]).to(device)
        lesson.train_epoch(ddp, images, batches, noise.to(device), optimizer, scheduler)

    return train


def check(path: str) -> None:
    """Raise unless an all_reduce has begun before the backward pass has ended."""
    with gzip.open(path, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if "dur" in e]
    reduces = [e["ts"] for e in events if "all_reduce" in e["name"].lower()]
    backward = [e["ts"] + e["dur"] for e in events if "Backward" in e["name"]]
    if not reduces or min(reduces) > max(backward):
        raise AssertionError(f"{path}: no all_reduce begins within the backward pass")


def main(path: str) -> None:
    """Warm up, record one step, and see that it shows what it should."""
    with lesson.process_group() as (rank, _, device):
        train = prepare(device)
        train(WARM_UP)
        with profile() as profiler:
            train(1)
        if rank == 0:
            profiler.export_chrome_trace(path)
            check(path)
        print(json.dumps({"device": str(device), "steps": WARM_UP + 1}), flush=True)
        del train  # DDP goes before its group: torch up to 2.13 could hang otherwise


if __name__ == "__main__":
    main(sys.argv[1])
