"""A ResNet learns CIFAR-10 on all ranks; batch, learning rate and warm-up are yours.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/resnet.py

The images are those that `make data` puts into data/:

    [rank 0] epoch 0: loss 2.263, accuracy 0.237 on stand-in shapes, 1580 images/s

Written by notebooks/07_cifar10_resnet.ipynb.
"""

import argparse
import copy
import gc
import json
import os
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DistributedSampler
from torchvision import models
from torchvision.datasets import CIFAR10

# Widths of the blocks, and the stride of the first layer; for a GPU it is a ResNet-18.
NETWORKS = {"cpu": ((16, 32, 64), 4)}
LARGE = (64, 64, 128, 128, 256, 256, 512, 512), 1


def norm(channels):
    return nn.GroupNorm(8, channels)  # looks at one image at a time


def resnet(widths, stride):
    """Return a residual network for ten classes of images of 32x32 pixels."""
    size = max(3, stride)
    layers = [nn.Conv2d(3, widths[0], size, stride, padding=size % 2, bias=False)]
    layers += [norm(widths[0]), nn.ReLU()]
    for last, width in zip(widths[:1] + widths, widths, strict=False):
        stride = 1 if width == last else 2  # more channels, on a map of half the side
        resize = nn.Conv2d(last, width, 1, stride, bias=False), norm(width)
        shortcut = nn.Sequential(*resize) if stride == 2 else None
        block = models.resnet.BasicBlock(last, width, stride, shortcut, norm_layer=norm)
        layers.append(block)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def all_windows(pixels):
    """Return every crop of every image, (images, 3, 9, 9, 32, 32), copying none."""
    padded = nn.functional.pad(pixels, (4,) * 4)
    return padded.unfold(2, 32, 1).unfold(3, 32, 1)


def augment(windows, index, noise):
    """Crop and flip the images `index`, each by the noise that is its own."""
    dy, dx, flip = noise[:, index]  # 0 to 1
    crops = windows[index, :, (9 * dy).long(), (9 * dx).long()]  # (batch, 3, 32, 32)
    return torch.where(flip.view(-1, 1, 1, 1) < 0.5, crops.flip(3), crops)


def normalize(pixels):
    """Return (pixels / 255 - 0.5) / 0.25, in the layout that convolutions like best."""
    return pixels.to(torch.float32, memory_format=torch.channels_last) / 63.75 - 2


def loss_of(model, images, index, noise):
    """Return the mean loss of the images with the numbers `index`."""
    windows, labels = images
    device = windows.device.type
    with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
        out = model(normalize(augment(windows, index, noise)))
        return nn.functional.cross_entropy(out, labels[index])


def train_epoch(ddp, images, batches, noise, optimizer, scheduler):
    """Train on this rank's batches; return each step's loss over the global batch."""
    losses = []
    ddp.train()
    for index in batches:  # (batch,): numbers of images
        loss = loss_of(ddp, images, index, noise)
        optimizer.zero_grad()
        loss.backward()  # every rank now holds the mean of all ranks' gradients
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    dist.all_reduce(losses)  # every rank now holds the sums over all ranks
    return (losses / dist.get_world_size()).tolist()


def factor(warm, total, step):
    """Return the part of the learning rate that a step takes: up to 1, down to 0."""
    return min((step + 1) / (warm + 1), (total - step) / (total - warm))


def draw_noise(images, epoch):
    """Return three random numbers for each image: the same on every rank."""
    return torch.rand(3, images, generator=torch.Generator().manual_seed(epoch))


@torch.no_grad()
def accuracy(model, pixels, labels, rank, world_size):
    """Return the share of the test images that are recognized; all ranks count."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=pixels.device)
    for index in torch.arange(rank, len(labels), world_size).split(500):  # no padding
        guesses = model(normalize(pixels[index])).argmax(dim=1)
        counts[0] += (guesses == labels[index]).sum()
        counts[1] += len(index)
    dist.all_reduce(counts)  # every rank now holds the counts of all
    assert counts[1] == len(labels), f"{counts[1]} images tested, not {len(labels)}"
    return (counts[0] / counts[1]).item()


def check_gradient(ddp, images, index, noise):
    """Raise unless the ranks' mean gradient is that of one process with all images."""
    everyone = [torch.empty_like(index.cpu()) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, index.cpu())  # all now hold all ranks' numbers
    together = torch.cat(everyone).to(index.device)
    assert len(together.unique()) == len(together), "two ranks have the same image"
    alone = copy.deepcopy(ddp.module)
    found = []
    for model, numbers in (alone, together), (ddp, index):
        loss_of(model, images, numbers, noise).backward()
        found.append(torch.cat([w.grad.flatten() for w in model.parameters()]))
    off = ((found[1] - found[0]).norm() / found[0].norm()).item()
    allowed = 1e-4 if index.device.type == "cpu" else 0.1  # a GPU computes in bfloat16
    assert off < allowed, f"the gradient is {off:.1%} off that of one process"
    ddp.zero_grad()


class StandIn(CIFAR10):  # drawn shapes in the same files, with other checksums
    base_folder = "stand-in/cifar-10-batches-py"
    train_list = [[name, None] for name, _ in CIFAR10.train_list]
    test_list = [[name, None] for name, _ in CIFAR10.test_list]
    meta = CIFAR10.meta | {"md5": None}


def load_images(args, device):
    """Return pixels (uint8) and labels to train on and to test with, and their name."""
    real = (args.data / CIFAR10.base_folder).is_dir()
    kind, name = (CIFAR10, "CIFAR-10") if real else (StandIn, "stand-in shapes")
    sets = []
    for train, count in (True, args.train_images), (False, args.test_images):
        try:
            found = kind(args.data, train)
        except Exception:  # reading a damaged file can raise nearly anything
            told = f"no intact images in {args.data}: run `make data`"
            raise SystemExit(told) from None
        pixels = torch.from_numpy(found.data[:count]).permute(0, 3, 1, 2).contiguous()
        sets.append((pixels.to(device), torch.tensor(found.targets[:count]).to(device)))
    return *sets, name


def parse_arguments():
    parser = argparse.ArgumentParser()
    data = Path(__file__).resolve().parents[2] / "data"
    parser.add_argument("--data", type=Path, default=data)
    sizes = {"epochs": 8, "train-images": 4096, "test-images": 997, "batch": 32}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--warm-up", type=float, default=0, help="in epochs")
    return parser.parse_args()


def main(rank, world_size, device):
    torch.set_num_threads(1)  # or a rank alone would take all cores
    args = parse_arguments()
    train_set, test_set, name = load_images(args, device)  # before anyone waits
    images = all_windows(train_set[0]), train_set[1]
    torch.manual_seed(0)
    model = resnet(*NETWORKS.get(device.type, LARGE)).to(device)
    ddp = nn.parallel.DistributedDataParallel(model)  # all hold rank 0's weights
    optimizer = torch.optim.SGD(model.parameters(), args.lr, 0.9, weight_decay=5e-4)
    sampler = DistributedSampler(range(len(images[1])), drop_last=True)
    steps = len(sampler) // args.batch  # in an epoch
    warm, total = args.warm_up * steps, args.epochs * steps
    scheduler = LambdaLR(optimizer, partial(factor, warm, total))
    losses, accuracies, speeds = [], [], []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)  # or every epoch has the order of the first
        share = torch.tensor(list(sampler))[: steps * args.batch]
        batches = share.view(steps, args.batch).to(device)
        noise = draw_noise(len(images[1]), epoch).to(device)
        if epoch == 0:
            check_gradient(ddp, images, batches[0], noise)
        began = time.perf_counter()
        losses += train_epoch(ddp, images, batches, noise, optimizer, scheduler)
        speeds.append(steps * args.batch * world_size / (time.perf_counter() - began))
        accuracies.append(accuracy(model, *test_set, rank, world_size))
        if rank == 0:
            told = f"accuracy {accuracies[-1]:.3f} on {name}, {speeds[-1]:.0f} images/s"
            print(f"[rank 0] epoch {epoch}: loss {losses[-1]:.3f}, {told}", flush=True)
    facts = {"data": name, "steps": len(losses), "accuracy": accuracies}
    return facts | {"losses": [round(x, 4) for x in losses], "speed": max(speeds)}


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
