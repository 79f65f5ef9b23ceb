"""CIFAR-10 for speed: all images in one tensor, cropped and flipped on the device.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/fast.py

Written by notebooks/07_cifar10_resnet.ipynb.
"""

import argparse
import gc
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import Subset
from torchvision import models, transforms
from torchvision.datasets import CIFAR10

if GPU := torch.cuda.is_available():  # a ResNet-18
    WIDTHS, STEM_STRIDE = (64, 64, 128, 128, 256, 256, 512, 512), 1
    BATCH, LR = 512, 0.4
else:  # narrow, and begins by halving the image's side
    WIDTHS, STEM_STRIDE, BATCH, LR = (16, 32, 64, 128), 2, 64, 0.1
ROOT = Path(__file__).resolve().parents[2]
PLAIN = [transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
AUGMENT = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]

EPOCHS, TRAIN, TEST = 20, 50_000, 10_000
PAD = 4  # pixels around an image, so that there are 9 x 9 windows of 32 x 32


def resnet(widths):
    """Return a residual network for ten classes of images of 32x32 pixels."""
    layers = [nn.Conv2d(3, widths[0], 3, STEM_STRIDE, padding=1, bias=False)]
    layers += [nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for last, width in zip(widths[:1] + widths, widths, strict=False):
        stride = 1 if width == last else 2  # more channels, on a map of half the side
        resize = [nn.Conv2d(last, width, 1, stride, bias=False), nn.BatchNorm2d(width)]
        shortcut = nn.Sequential(*resize) if stride == 2 else None
        layers.append(models.resnet.BasicBlock(last, width, stride, shortcut))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


class StandIn(CIFAR10):  # drawn shapes in the same files, with other checksums
    base_folder = "stand-in/cifar-10-batches-py"
    train_list = [[name, None] for name, _ in CIFAR10.train_list]
    test_list = [[name, None] for name, _ in CIFAR10.test_list]
    meta = CIFAR10.meta | {"md5": None}


def load_images(args):
    """Return the images to train on, those to test on, and the name of them all."""
    real = (args.data / CIFAR10.base_folder).is_dir()
    images, name = (CIFAR10, "CIFAR-10") if real else (StandIn, "stand-in shapes")
    try:
        train_set = images(args.data, True, transforms.Compose(AUGMENT + PLAIN))
        # Cropped and flipped test images would make the accuracy random.
        test_set = images(args.data, False, transforms.Compose(PLAIN))
    except Exception:  # reading a damaged file can raise nearly anything
        raise SystemExit(f"no intact images in {args.data}: run `make data`") from None
    train_set = Subset(train_set, range(len(train_set))[: args.train_images])
    return train_set, Subset(test_set, range(len(test_set))[: args.test_images]), name


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT / "data")
    sizes = {"epochs": EPOCHS, "train-images": TRAIN, "test-images": TEST}
    for name, default in (sizes | {"batch": BATCH}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=LR, help="highest, for one rank")
    return parser.parse_args()


def on_device(images, device):
    """Return a set's pixels as uint8, a quarter of float32, and its labels."""
    data, n = images.dataset, len(images)
    pixels = torch.from_numpy(data.data[:n]).permute(0, 3, 1, 2).contiguous()
    return pixels.to(device), torch.tensor(data.targets[:n], device=device)


def all_windows(pixels):
    """Return every crop of every image, (images, 3, 9, 9, 32, 32), copying none."""
    padded = nn.functional.pad(pixels, (PAD,) * 4)
    return padded.unfold(2, 32, 1).unfold(3, 32, 1)


def augment(windows, index):
    """Crop and flip the images `index`, each by its own random numbers."""
    n, device = len(index), windows.device
    dy, dx = torch.randint(2 * PAD + 1, (2, n), device=device)
    crops = windows[index, :, dy, dx]  # (n, 3, 32, 32)
    flip = torch.rand(n, 1, 1, 1, device=device) < 0.5
    return torch.where(flip, crops.flip(3), crops)


def normalise(pixels):
    """Return (pixels / 255 - 0.5) / 0.25, in the layout that convolutions like best."""
    return pixels.to(torch.float32, memory_format=torch.channels_last) / 63.75 - 2


def check_views(pixels, windows):
    """Raise unless a batch of one image, 64 times, holds many of its 162 views."""
    padded = nn.functional.pad(pixels[0].cpu(), (PAD,) * 4)
    crops = [padded[:, y : y + 32, x : x + 32] for y in range(9) for x in range(9)]
    possible = {v.numpy().tobytes() for crop in crops for v in (crop, crop.flip(2))}
    batch = augment(windows, torch.zeros(64, dtype=torch.int64, device=pixels.device))
    views = {view.numpy().tobytes() for view in batch.cpu()}
    assert views <= possible, "a view is no crop of its image"
    assert len(views) > 32, f"64 images share {len(views)} crops: one for the batch?"


def train_epoch(ddp, windows, labels, batches, optimizer, scheduler):
    """Train on this rank's batches, once; return the seconds it took."""
    began, device = time.perf_counter(), windows.device
    ddp.train()
    for index in batches.to(device):  # (batch,): numbers of images
        with torch.autocast(device.type, torch.bfloat16, GPU):  # weights stay float32
            out = ddp(normalise(augment(windows, index)))
            loss = nn.functional.cross_entropy(out, labels[index], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()  # every rank now holds the mean of all ranks' gradients
        optimizer.step()
        scheduler.step()
    loss.item()  # waits for a GPU to finish, or the clock would be read too early
    return time.perf_counter() - began


def share_buffers(model):
    """Make the ranks agree on BatchNorm's averages, which are each rank's own."""
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)  # every rank now holds rank 0's


def check_epoch(model, order, last_order):
    """Raise unless the ranks shared the images out, and anew, and agree on the rest."""
    total = sum(value.double().sum().item() for value in model.state_dict().values())
    ends = [None] * dist.get_world_size()
    dist.all_gather_object(ends, (order, total, torch.rand(()).item()))  # all hold all
    orders, totals, noises = zip(*ends, strict=True)

    taken = [image for share in orders for image in share]
    assert len(set(taken)) == len(taken), "an image was trained on twice in one epoch"
    assert order != last_order, "this epoch had the last one's order: set_epoch?"
    assert len(set(totals)) == 1, f"the ranks' models differ; their sums are {totals}"
    assert len(set(noises)) == len(noises), f"two ranks crop and flip alike: {noises}"


def deal(images, batch, epoch):
    """Return this rank's share of an epoch's shuffled images, in whole batches."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    shuffle = torch.Generator().manual_seed(epoch)  # so all ranks hold one order
    order = torch.randperm(images, generator=shuffle)
    whole = images - images % (batch * world_size)
    return order[:whole][rank::world_size].view(-1, batch)  # (steps, batch)


@torch.no_grad()
def share_recognised(model, pixels, labels, rank, world_size):
    """Return the share of the test images that are recognised; all ranks count."""
    model.eval()
    counts = torch.zeros(2, len(labels), dtype=torch.int64, device=pixels.device)
    for index in torch.arange(rank, len(labels), world_size).split(500):  # no padding
        with torch.autocast(pixels.device.type, torch.bfloat16, GPU):
            guesses = model(normalise(pixels[index])).argmax(dim=1)
        counts[0, index] += guesses == labels[index]
        counts[1, index] += 1
    dist.all_reduce(counts)  # every rank now holds the counts of all
    assert torch.all(counts[1] == 1), f"not all tested once: {counts[1].unique()}"
    return counts[0].double().mean().item()


def main(rank, world_size, device):
    torch.set_num_threads(1)  # or a rank alone would take all cores
    torch.backends.cudnn.benchmark = True  # every batch has the same shape
    args = parse_arguments()
    *sets, name = load_images(args)  # before anyone waits for anyone
    (pixels, labels), test_set = (on_device(each, device) for each in sets)
    torch.manual_seed(rank)  # for the noise; DDP makes the first weights agree
    windows = all_windows(pixels)
    check_views(pixels, windows)
    model = resnet(WIDTHS).to(device)
    ddp = nn.parallel.DistributedDataParallel(model)  # all hold rank 0's weights

    together = args.batch * world_size  # images in a step of all ranks
    lr, steps = args.lr * world_size, args.epochs * (len(labels) // together)
    options = {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
    optimizer = torch.optim.SGD(model.parameters(), lr, **options)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps)

    order, history = None, []
    for epoch in range(args.epochs):
        batches = deal(len(labels), args.batch, epoch)
        order, last_order = batches.flatten().tolist(), order
        took = train_epoch(ddp, windows, labels, batches, optimizer, scheduler)
        share_buffers(model)
        accuracy = share_recognised(model, *test_set, rank, world_size)
        check_epoch(model, order, last_order)
        history.append([accuracy, took, len(batches) * together / took])
        end = f"accuracy {accuracy:.3f} on {name}, {history[-1][2]:.0f} images/s"
        print(f"[rank {rank}] epoch {epoch}: {end}", flush=True)
    return {"data": name, "lr": lr, "steps": steps, "history": history}


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
