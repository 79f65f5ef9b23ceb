"""Time DDP's settings side by side: each takes its turn in every round.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/settings.py

    [rank 0] default: 31.4 ms a batch

Written by notebooks/07_cifar10_resnet.ipynb.
"""

import argparse
import copy
import gc
import json
import os
import time
from contextlib import contextmanager, nullcontext
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models.resnet import BasicBlock

SETTINGS = {
    "default": {},
    "bucket_cap_mb=0.01": {"bucket_cap_mb": 0.01},  # the default is 25
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "no_sync, 3 of 4": {},
}
CAPS = "default", "bucket_cap_mb=0.01"  # whose buckets are counted
BATCH = 16  # images
BATCHES = 4  # whose gradients a turn sums up


def backward(model, batches, exchanges):
    """Sum up the gradients of some batches; exchange them after the last or each."""
    for number, (images, labels) in enumerate(batches, start=1):
        silent = exchanges == 1 and number < len(batches)
        with model.no_sync() if silent else nullcontext():
            nn.functional.cross_entropy(model(images), labels).backward()


def gradients(model):
    """Return all gradients of a network in one tensor."""
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def expected_gradients(model, batches):
    """Return the mean of all ranks' gradients, computed without DDP."""
    alone = copy.deepcopy(model)
    for images, labels in batches:
        nn.functional.cross_entropy(alone(images), labels).backward()
    expected = gradients(alone)
    dist.all_reduce(expected)  # every rank now holds the sum over all
    return expected / dist.get_world_size()


def bucket_bytes(model, options, batches):
    """Return the bytes of each bucket that DDP exchanges in one backward."""
    ddp = DDP(copy.deepcopy(model), **options)
    sizes = []

    def watch(state, bucket):  # DDP calls it for each bucket, in place of all_reduce
        sizes.append(bucket.buffer().nbytes)
        return allreduce_hook(state, bucket)

    ddp.register_comm_hook(None, watch)
    for batch in batches[:2]:  # after its first backward DDP builds its buckets anew
        sizes.clear()
        backward(ddp, [batch], 1)
    return sizes


def take_turn(name, ddp, batches):
    """Return the milliseconds per batch that one turn takes."""
    exchanges = 1 if name.startswith("no_sync") else len(batches)
    ddp.zero_grad()

    dist.barrier()  # nobody starts the clock before all are there
    began = time.perf_counter()
    backward(ddp, batches, exchanges)
    ddp.module[0].weight.grad.sum().item()  # waits for a GPU to finish
    return 1000 * (time.perf_counter() - began) / len(batches)


def network():
    """Return the narrow network of cifar10/fast.py: 0.3 million weights, 1.2 MB."""
    layers = [nn.Conv2d(3, 16, 3, 2, padding=1, bias=False), nn.BatchNorm2d(16)]
    layers.append(BasicBlock(16, 16))
    for width in (32, 64, 128):  # each on a map of half the side
        resize = [nn.Conv2d(width // 2, width, 1, 2, bias=False), nn.BatchNorm2d(width)]
        layers.append(BasicBlock(width // 2, width, 2, nn.Sequential(*resize)))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    with process_group() as (rank, _, device):
        torch.manual_seed(rank)  # other images on every rank
        images = torch.randn(BATCHES, BATCH, 3, 32, 32, device=device)
        labels = torch.randint(10, (BATCHES, BATCH), device=device)
        batches = list(zip(images, labels, strict=True))

        model = network().to(device)
        # In each of them all ranks hold rank 0's weights.
        ddps = {
            name: DDP(copy.deepcopy(model), **options)
            for name, options in SETTINGS.items()
        }
        expected = expected_gradients(ddps["default"].module, batches)

        milliseconds = {name: [] for name in SETTINGS}
        for turn in range(1 + args.rounds):  # the first round warms up
            # There and back, so that nobody always comes first.
            for name, ddp in list(ddps.items())[:: 1 if turn % 2 else -1]:
                milliseconds[name].append(take_turn(name, ddp, batches))
                if not torch.allclose(gradients(ddp), expected, rtol=1e-3, atol=1e-4):
                    raise AssertionError(f"{name}: these gradients are not the mean")

        buckets = [bucket_bytes(model, SETTINGS[name], batches) for name in CAPS]
        for sizes in buckets:
            assert sum(sizes) == expected.nbytes, f"{sizes} are not all gradients"
        milliseconds = {name: times[1:] for name, times in milliseconds.items()}
        for name, times in milliseconds.items():
            print(f"[rank {rank}] {name}: {median(times):.1f} ms a batch", flush=True)
        facts = {"milliseconds": milliseconds, "buckets": buckets}
        print(json.dumps(facts), flush=True)
        del ddp, ddps  # before their group, or torch up to 2.13 could wait for ever


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
