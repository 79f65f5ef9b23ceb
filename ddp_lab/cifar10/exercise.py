"""Exercise: the mean and the variance of all ranks' images, with one all_reduce.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/exercise.py

The numbers 0 to 10 are shared out over the ranks; together they have the mean 5 and the
variance 10, and every rank should find out. Then come numbers that are drawn.

    [rank 0] not yet

Written by notebooks/07_cifar10_resnet.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

CHANNELS = 3
FAR = 10_000.0


def batch_statistics(x):
    """Return mean and variance, by channel, over the images of all ranks.

    This is what SyncBatchNorm does where BatchNorm looks at its own rank only. Use one
    all_reduce and no other call; the ranks hold different numbers of images.

    Args:
        x: (images of this rank, channels), float32, on a device that all_reduce takes.

    Returns:
        Two tensors (channels,), float32 or float64: 5 and 10 for the numbers 0 to 10,
        where the variance is the mean squared distance from the mean.
    """
    return None  # your code here


class Calls(TorchDispatchMode):
    """Notes every call that reaches a process group, whatever name it was made by."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.split(".")[0].replace("_", "")
        if "c10d" in function.namespace and not name.startswith(("wait", "wrap")):
            self.made.append(name)
        return function(*args, **(kwargs or {}))


def images_of(case, rank, world_size):
    """Return this rank's images; but for those of the first case, nobody knows them."""
    if case == "0 to 10":
        numbers = torch.arange(11.0)
        images = torch.stack([numbers, 3 * numbers, numbers**2], dim=1)  # (11, 3)
        return images.tensor_split(world_size)[rank]  # neighbors stay together
    chance = torch.Generator()
    chance.seed()  # not from a fixed number: other images on every rank, in every run
    count = torch.randint(5, 40, (), generator=chance).item()
    own = torch.rand(1, CHANNELS, generator=chance)  # each rank's mean is another
    noise = torch.randn(count, CHANNELS, generator=chance)
    return noise + 4 * own + (FAR if case == "around 10,000" else 0)


def statistics_of(own, world_size):
    """Return the truth, in float64, from the images of all ranks."""
    everyone = [None] * world_size
    dist.all_gather_object(everyone, own.double())  # all now hold all images
    images = torch.cat(everyone)
    return torch.stack([images.mean(dim=0), images.var(dim=0, correction=0)])


def main(rank, world_size, device):
    variances = []
    for case in "0 to 10", "drawn", "drawn again", "around 10,000":
        own = images_of(case, rank, world_size)
        with Calls() as calls:
            calls.made = []
            answer = batch_statistics(own.to(device))
        if answer is None:
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return
        if calls.made != ["allreduce"]:
            raise AssertionError(f"calls: {calls.made}, expected one all_reduce")
        found = torch.stack([each.detach().double().cpu() for each in answer])
        expected = statistics_of(own, world_size)
        if not torch.allclose(found, expected, rtol=1e-3):
            told = f"mean, variance are {found.tolist()}, not {expected.tolist()}"
            raise AssertionError(f"images {case}: {told}")
        variances.append(found[1, 0].item())
    print(f"[rank {rank}] mean and variance of all, in four cases", flush=True)
    return {"solved": True, "variance": variances[0]}


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
