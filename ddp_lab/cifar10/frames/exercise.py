"""Exercise: the mean and the variance of all ranks' images, with one all_reduce.

The numbers 0 to 10 are shared out over the ranks; together they have the mean 5 and the
variance 10, and every rank is to find out.

    [rank 0] not yet
"""

import json
from unittest import mock

import torch
import torch.distributed as dist

OTHERS = "all_gather all_gather_object all_gather_into_tensor gather reduce broadcast"


def batch_statistics(x):
    return None  # the cell's function stands here


def refuse(*args, **kwargs):
    raise AssertionError("one all_reduce is enough; no other call is allowed here")


def main(rank, world_size, device):
    numbers = torch.arange(11, dtype=torch.float64, device=device)
    images = torch.stack([numbers, 3 * numbers, numbers**2], dim=1)  # (11, 3)
    own = images.tensor_split(world_size)[rank]  # neighbours stay together
    sums = mock.Mock(wraps=dist.all_reduce)
    with mock.patch.multiple(dist, **dict.fromkeys(OTHERS.split(), refuse)):
        with mock.patch.object(dist, "all_reduce", sums):
            answer = batch_statistics(own.clone())
    if answer is None:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return
    if sums.call_count != 1:
        raise AssertionError(f"{sums.call_count} all_reduces, expected one")
    mean, variance = answer
    expected = torch.stack([images.mean(dim=0), images.var(dim=0, correction=0)])
    if not torch.allclose(torch.stack([mean, variance]), expected):
        got = [mean.tolist(), variance.tolist()]
        raise AssertionError(f"mean, variance are {got}, not {expected.tolist()}")
    print(f"[rank {rank}] {len(own)} images, mean and variance of all", flush=True)
    own_variance = own[:, 0].var(correction=0).item()
    facts = {"solved": True, "variance": variance[0].item(), "own": own_variance}
    return facts
