"""A ResNet learns CIFAR-10 on all ranks at once, and all ranks test it together.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/resnet.py

The images are those that `make data` puts into data/:

    [rank 0] epoch 0: loss 2.107, accuracy 0.112 on stand-in shapes, 598 images/s

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
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision import models, transforms
from torchvision.datasets import CIFAR10

# The one switch: the width of each block. For a GPU they make a ResNet-18.
NETWORKS = {"cpu": (8, 16, 32, 64, 128), "cuda": (64, 64, 128, 128, 256, 256, 512, 512)}
STEM_STRIDE = 1  # no ImageNet stem, which is for images of 224 x 224
ROOT = Path(__file__).resolve().parents[2]
PLAIN = [transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
AUGMENT = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
EPOCHS, TRAIN, TEST = 6, 2048, 997  # a prime number of test images: always pads
BATCH, LR = 32, 0.05  # images per rank and step; highest rate, for one rank


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
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "build/cifar10.pt")
    parser.add_argument("--resume", action="store_true", help="from the checkpoint")
    sizes = {"epochs": EPOCHS, "train-images": TRAIN, "test-images": TEST}
    for name, default in (sizes | {"batch": BATCH}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=LR, help="highest, for one rank")
    return parser.parse_args()


def train_epoch(ddp, loader, optimizer, scheduler, device, epoch):
    """Train on this rank's images, once; return the last loss and the seconds."""
    began = time.perf_counter()
    ddp.train()
    for step, (images, labels) in enumerate(loader, start=1):
        images = images.to(device, memory_format=torch.channels_last)
        loss = nn.functional.cross_entropy(ddp(images), labels.to(device))
        optimizer.zero_grad()
        loss.backward()  # every rank now holds the mean of all ranks' gradients
        optimizer.step()
        scheduler.step()
        if dist.get_rank() == 0 and step % 16 == 0:
            print(f"[rank 0] epoch {epoch}, step {step}: loss {loss:.3f}", flush=True)
    last_loss = loss.item()  # waits for a GPU to finish, before the clock is read
    return last_loss, time.perf_counter() - began


@torch.no_grad()
def evaluate(model, test_set, rank, world_size, batch, device):
    """Count, by class, the recognised images and all; as rank 0 of 1, do so alone."""
    sampler = DistributedSampler(test_set, world_size, rank, shuffle=False)
    left = len(range(rank, len(test_set), world_size))  # behind them, the sampler pads
    counts = torch.zeros(2, 10, dtype=torch.int64, device=device)
    model.eval()
    for images, labels in DataLoader(test_set, batch, sampler=sampler):
        images, labels = images[:left].to(device), labels[:left].to(device)
        left -= len(labels)
        recognised = labels[model(images).argmax(dim=1) == labels]
        counts[0] += torch.bincount(recognised, minlength=10)
        counts[1] += torch.bincount(labels, minlength=10)
    if world_size > 1:
        dist.all_reduce(counts)  # every rank now holds the counts of all
    return counts  # (2, 10)


def save(path, parts, epoch, run):
    """Write all that the next epoch depends on, from rank 0 alone."""
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, torch.get_rng_state())  # every rank now holds all
    if dist.get_rank() == 0:
        saved = {n: part.state_dict() for n, part in parts.items()} | {"rng": states}
        new = Path(f"{path}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(new, "wb") as file:
                torch.save(saved | {"epoch": epoch, "run": run}, file)
                os.fsync(file.fileno())  # on the disk, before it gets its final name
            os.replace(new, path)  # a crash leaves the old file or the new one
            names = os.open(path.parent, os.O_RDONLY)
            os.fsync(names)  # and the name is on the disk, too
            os.close(names)
        except (OSError, RuntimeError) as error:  # a full disk, say
            new.unlink(missing_ok=True)  # half a file is of no use
            first = error if isinstance(error, OSError) else error.__context__ or error
            raise OSError(f"cannot save {path}: {first.args[-1]}") from None


def resume(path, parts, run):
    """Put back what `save` wrote; return how many epochs are done."""
    cause = "missing or cut short"
    try:  # reading a damaged file can raise nearly anything
        saved = torch.load(path, map_location="cpu", weights_only=True)
        cause = f"done or of another run or network: {saved['run']}, not {run}"
        assert saved["run"] == run and saved["epoch"] < run[-1]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["rng"][dist.get_rank()])
        return saved["epoch"]
    except Exception:
        raise SystemExit(f"{path} is {cause}") from None


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


def main(rank, world_size, device):
    torch.set_num_threads(1)  # or a rank alone would take all cores
    torch.backends.cudnn.deterministic = True  # or a resumed run would end elsewhere
    args = parse_arguments()
    train_set, test_set, name = load_images(args)  # before anyone waits for anyone
    torch.manual_seed(rank)  # for the noise; DDP makes the first weights agree
    model = resnet(NETWORKS.get(device.type, NETWORKS["cuda"])).to(device)
    ddp = nn.parallel.DistributedDataParallel(model)  # all hold rank 0's weights
    ddp(torch.zeros(2, 3, 32, 32, device=device)).sum().backward()  # DDP regroups

    sampler = DistributedSampler(train_set, drop_last=True)
    loader = DataLoader(train_set, args.batch, sampler=sampler)
    lr, steps = args.lr * world_size, args.epochs * len(loader)  # linear scaling
    optimizer = torch.optim.SGD(model.parameters(), lr, 0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    run = [name, world_size, len(train_set), args.batch, args.lr, args.epochs]
    done = resume(args.checkpoint, parts, run) if args.resume else 0
    print(f"[rank {rank}] trains on {len(sampler)} images of {name}", flush=True)

    order, accuracy = None, []
    for epoch in range(done, args.epochs):
        sampler.set_epoch(epoch)  # or every epoch has the order of the first
        order, last_order = list(sampler), order
        loss, took = train_epoch(ddp, loader, optimizer, scheduler, device, epoch)
        share_buffers(model)
        counts = evaluate(model, test_set, rank, world_size, args.batch, device)
        check_epoch(model, order, last_order)
        save(args.checkpoint, parts, epoch + 1, run)
        accuracy.append((counts[0].sum() / counts[1].sum()).item())
        end = f"{accuracy[-1]:.3f} on {name}, {len(sampler) * world_size / took:.0f}"
        words = f"[rank {rank}] epoch {epoch}: loss {loss:.3f}, accuracy {end} images/s"
        print(words, flush=True)

    alone = evaluate(model, test_set, 0, 1, args.batch, device)
    off = (counts - alone).abs().sum(1).tolist()  # a GPU may round an image elsewhere
    told = f"{alone.tolist()}, all {counts.tolist()}"
    assert off[0] <= (device.type != "cpu") and off[1] == 0, told
    return {"accuracy": accuracy, "counts": counts.tolist()}


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
