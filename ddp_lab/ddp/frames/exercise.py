"""Exercise: a loss that makes DDP right although the shards are unequal.

Sample i has the gradient i. Rank 0 holds 1 to 8, rank 1 holds 9 and 10: find 5.5.
"""

import math
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

RUNS = 4  # in the first one, the shards of the lesson


def shard_loss(errors):
    return None  # the cell's function stands here


def sizes_of_shards(run, world_size):
    """The number of samples of each rank."""
    sizes = [8] + [2] * (world_size - 1)
    if run > 0:
        sizes = [random.randint(1, 12) for _ in sizes]
    dist.broadcast_object_list(sizes, src=0)  # every rank now holds what rank 0 drew
    return sizes


def gradient(shard, device):
    """The gradient that DDP makes of this rank's loss; None if there is no loss yet."""
    model = DDP(torch.nn.Linear(1, 1, bias=False).to(device))
    loss = shard_loss(model(shard.view(-1, 1).to(device)))
    if loss is None:
        return None
    loss.backward()  # every rank now holds the mean of all ranks' gradients
    return model.module.weight.grad.item()


def main(rank, world_size, device):
    facts = {"solved": True, "expected": [], "gradients": []}
    for run in range(RUNS):
        sizes = sizes_of_shards(run, world_size)
        samples = torch.arange(1.0, sum(sizes) + 1)
        expected = samples.mean().item()
        got = gradient(samples.split(sizes)[rank], device)
        if got is None:  # on all ranks alike, so no rank is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return {"solved": False}
        if not math.isclose(got, expected, abs_tol=1e-4):
            raise AssertionError(f"shards {sizes}: {got:.4f}, expected {expected}")
        print(f"[rank {rank}] shards {sizes}: gradient {got:.1f}", flush=True)
        facts["gradients"].append(got)
        facts["expected"].append(expected)
    return facts
