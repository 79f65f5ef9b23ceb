"""Exercise: the accuracy by class of all ranks' images, with one all_reduce.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cifar10/exercise_accuracy.py

101 images of ten classes, more of some than of others, are dealt out by a
DistributedSampler, which pads. Until `class_accuracy` is written:

    [rank 0] not yet

Written by notebooks/07_cifar10_resnet.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DistributedSampler

IMAGES, CLASSES = 101, 10
OTHERS = "all_gather all_gather_object all_gather_into_tensor gather reduce broadcast"


def class_accuracy(guesses, labels):
    """Return the mean of the ten classes' accuracies over all 101 images.

    A class with few images counts as much as one with many. Use one all_reduce and no
    other call. For any number of ranks the answer is 0.4584 (rounded).

    Args:
        guesses, labels: (share,), int64: what this rank got of the images 0 to 100,
            rank, rank + world_size, ... in order, and then the padding.
    """
    return None  # your code here


def test_images():
    """Return guesses and labels of all images; class 9 has far fewer than class 0."""
    numbers = torch.arange(IMAGES)
    labels = ((numbers * 37 % IMAGES / IMAGES) ** 2 * CLASSES).long()
    right = numbers * 29 % IMAGES < 70 - 5 * labels
    return torch.where(right, labels, (labels + 1) % CLASSES), labels


def refuse(*args, **kwargs):
    raise AssertionError("one all_reduce is enough; no other call is allowed here")


def main(rank, world_size, device):
    guesses, labels = (tensor.to(device) for tensor in test_images())
    share = list(DistributedSampler(range(IMAGES), shuffle=False))
    sums = mock.Mock(wraps=dist.all_reduce)
    with mock.patch.multiple(dist, **dict.fromkeys(OTHERS.split(), refuse)):
        with mock.patch.object(dist, "all_reduce", sums):
            answer = class_accuracy(guesses[share], labels[share])
    if answer is None:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return
    if sums.call_count != 1:
        raise AssertionError(f"{sums.call_count} all_reduces, expected one")
    right = guesses == labels
    classes = [right[labels == c].double().mean().item() for c in range(CLASSES)]
    expected = sum(classes) / CLASSES
    if abs(float(answer) - expected) > 1e-6:
        raise AssertionError(f"accuracy {float(answer):.6f}, expected {expected:.6f}")
    print(f"[rank {rank}] {len(share)} images, accuracy {expected:.4f}", flush=True)
    return {"solved": True, "accuracy": float(answer)}


# --- the same in every program: join the group, run main, leave whatever happens ---


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


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
