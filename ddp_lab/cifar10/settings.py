"""Time DDP's settings side by side: each takes its turn in every round.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/settings.py

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
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models.resnet import BasicBlock

SETTINGS = {
    "default": {},
    "bucket_cap_mb=25": {"bucket_cap_mb": 25},
    "bucket_cap_mb=0.01": {"bucket_cap_mb": 0.01},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "no_sync, 3 of 4": {},
}


def network():
    """Return the narrow network of cifar10/fast.py: 0.3 million weights, 1.2 MB."""
    layers = [nn.Conv2d(3, 16, 3, 2, padding=1, bias=False), nn.BatchNorm2d(16)]
    layers.append(BasicBlock(16, 16))
    for width in (32, 64, 128):  # each on a map of half the side
        resize = [nn.Conv2d(width // 2, width, 1, 2, bias=False), nn.BatchNorm2d(width)]
        layers.append(BasicBlock(width // 2, width, 2, nn.Sequential(*resize)))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def backward(model, batches, exchanges):
    """Sum up the gradients of some batches; exchange them after the last or each."""
    for number, (images, labels) in enumerate(batches, start=1):
        silent = exchanges == 1 and number < len(batches)
        with model.no_sync() if silent else nullcontext():
            nn.functional.cross_entropy(model(images), labels).backward()


def take_turn(name, ddp, batches):
    """Return the milliseconds per batch that one turn takes."""
    exchanges = 1 if name.startswith("no_sync") else len(batches)
    ddp.zero_grad()
    dist.barrier()  # the clock starts when all are there
    began = time.perf_counter()
    backward(ddp, batches, exchanges)
    ddp.module[0].weight.grad.sum().item()  # waits for a GPU to finish
    return 1000 * (time.perf_counter() - began) / len(batches)


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


def main(rank, world_size, device):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(rank)  # other images on every rank
    images = torch.randn(4, 8, 3, 32, 32, device=device)  # four batches of 8
    batches = list(zip(images, torch.randint(10, (4, 8), device=device), strict=True))

    model = network().to(device)
    # In each of them all ranks hold rank 0's weights.
    ddps = {name: DDP(copy.deepcopy(model), **SETTINGS[name]) for name in SETTINGS}
    expected = expected_gradients(ddps["default"].module, batches)
    found = {name: [] for name in SETTINGS}
    for turn in range(1 + args.rounds):  # the first round warms up
        # There and back, so that none always comes first.
        for name, ddp in list(ddps.items())[:: 1 if turn % 2 else -1]:
            found[name].append(take_turn(name, ddp, batches))
            if not torch.allclose(gradients(ddp), expected, rtol=1e-3, atol=1e-4):
                raise AssertionError(f"{name}: these gradients are not the mean")

    # DDP's own record: the bytes of each bucket, as arranged after the first backward.
    logged = [ddp._get_ddp_logging_data() for ddp in ddps.values()][:3]
    buckets = [list(map(int, d["rebuilt_bucket_sizes"].split(","))) for d in logged]
    for sizes in buckets:
        assert sum(sizes) == expected.nbytes, f"{sizes} are not all gradients"
    for name in found:
        del found[name][0]
        print(f"[rank {rank}] {name}: {median(found[name]):.1f} ms a batch", flush=True)
    return {"milliseconds": found, "buckets": buckets}


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
