"""Exercise: the accuracy by class of all ranks' images, with one all_reduce.

101 images of ten classes, more of some than of others, are dealt out by a
DistributedSampler, which pads. Until `class_accuracy` is written:

    [rank 0] not yet
"""

import json
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

IMAGES, CLASSES = 101, 10
OTHERS = "all_gather all_gather_object all_gather_into_tensor gather reduce broadcast"


def class_accuracy(guesses, labels):
    return None  # the cell's function stands here


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
