"""Time the training of an old page, corrected just enough to run today.

    torchrun --standalone --nproc-per-node 2 baseline.py FOLDER STEPS

ImageNet's ResNet-18, images cropped and flipped one by one as PIL images by eight
workers, and SGD; FOLDER is data/ after `make data`. After one step that warms up, every
rank reports the seconds that STEPS steps took, and its images per step.
"""

import json
import os
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import models, transforms
from torchvision.datasets import CIFAR10

from ddp_lab.start.hello import process_group

BATCH = 256  # images per rank
TRANSFORM = transforms.Compose(
    [
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ]
)


class StandIn(CIFAR10):
    """Drawn shapes in CIFAR-10's own files, but of course with other checksums."""

    base_folder = "stand-in/cifar-10-batches-py"
    train_list = [[name, None] for name, _ in CIFAR10.train_list]
    test_list = [[name, None] for name, _ in CIFAR10.test_list]
    meta = CIFAR10.meta | {"md5": None}


def images(folder: str) -> CIFAR10:
    """Return CIFAR-10 if it is there, or the stand-in, with the old page's noise."""
    real = os.path.isdir(os.path.join(folder, CIFAR10.base_folder))
    return (CIFAR10 if real else StandIn)(folder, train=True, transform=TRANSFORM)


def batches(
    loader: DataLoader, sampler: DistributedSampler[CIFAR10]
) -> Iterator[list[Tensor]]:
    """Yield full batches for ever."""
    epoch = 0
    while True:
        sampler.set_epoch(epoch := epoch + 1)
        yield from (batch for batch in loader if len(batch[0]) == BATCH)


def train(device: torch.device, folder: str, steps: int) -> float:
    """Train for one step, then for `steps`; return the seconds that those took."""
    torch.manual_seed(0)
    model = models.resnet18(weights=None).to(device)
    ddp_model = nn.parallel.DistributedDataParallel(model)
    train_set = images(folder)
    sampler: DistributedSampler[CIFAR10] = DistributedSampler(dataset=train_set)
    loader = DataLoader(train_set, BATCH, sampler=sampler, num_workers=8)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        ddp_model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5
    )
    ddp_model.train()
    for step, (inputs, labels) in enumerate(batches(loader, sampler)):
        inputs, labels = inputs.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(ddp_model(inputs), labels)
        loss.backward()
        optimizer.step()
        if step == 0:
            loss.item()  # waits for a GPU to finish
            began = time.perf_counter()
        if step == steps:
            break
    loss.item()
    return time.perf_counter() - began


def main(folder: str, steps: int) -> None:
    """Train, and report."""
    with process_group() as (_, _, device):
        taken = train(device, folder, steps)
        print(json.dumps({"seconds": taken, "images": steps * BATCH}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
