"""Time how images reach a training: one by one through PIL, or as windows of a tensor.

    torchrun --standalone --nproc-per-node 1 data.py FOLDER ROUNDS

FOLDER is data/ after `make data`. Every way delivers the same images, cropped, flipped
and normalised, in batches on the device; they take turns, one thread each.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Subset
from torchvision import transforms
from torchvision.datasets import CIFAR10

IMAGES, BATCH = 4096, 256
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_num_threads(1)


class StandIn(CIFAR10):
    """Drawn shapes in CIFAR-10's own files, but of course with other checksums."""

    base_folder = "stand-in/cifar-10-batches-py"
    train_list = [[name, None] for name, _ in CIFAR10.train_list]
    test_list = [[name, None] for name, _ in CIFAR10.test_list]
    meta = CIFAR10.meta | {"md5": None}


def main(folder: str, rounds: int) -> None:
    """Let the ways take turns, and report."""
    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    real = os.path.isdir(os.path.join(folder, CIFAR10.base_folder))
    train_set = (CIFAR10 if real else StandIn)(folder, transform=transform)
    subset = Subset(train_set, range(IMAGES))
    pixels = torch.from_numpy(train_set.data[:IMAGES]).permute(0, 3, 1, 2)
    windows = pad(pixels.to(DEVICE), (4,) * 4).unfold(2, 32, 1).unfold(3, 32, 1)

    def loader(workers: int) -> Iterator[torch.Tensor]:
        for images, _ in DataLoader(subset, BATCH, shuffle=True, num_workers=workers):
            yield images.to(DEVICE)

    def from_windows() -> Iterator[torch.Tensor]:
        for index in torch.randperm(IMAGES, device=DEVICE).split(BATCH):
            dy, dx = torch.randint(9, (2, BATCH), device=DEVICE)
            crops = windows[index, :, dy, dx]  # (BATCH, 3, 32, 32)
            flip = torch.rand(BATCH, 1, 1, 1, device=DEVICE) < 0.5
            yield torch.where(flip, crops.flip(3), crops).float() / 63.75 - 2

    ways: dict[str, Callable[[], Iterator[torch.Tensor]]] = {
        "DataLoader, PIL": lambda: loader(0),
        "DataLoader, PIL, 2 workers": lambda: loader(2),
        "windows of one tensor": from_windows,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            delivered = [batch.shape for batch in way()]
            if DEVICE.type == "cuda":
                torch.cuda.synchronize()
            taken = time.perf_counter() - start
            assert delivered == [(BATCH, 3, 32, 32)] * (IMAGES // BATCH), name
            if turn:
                seconds[name].append(taken)
    print(json.dumps({"images": IMAGES, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
