"""Exercise: a loss that makes DDP right although the shards are unequal.

Sample i has the gradient i. Rank 0 holds 1 to 8, rank 1 holds 9 and 10: find 5.5.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

SIZES = (8, 2), (3, 4), (6, 6)  # in three runs: samples of rank 0, and of each other


def shard_loss(errors):
    return None  # the cell's function stands here


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
    for pair in SIZES:
        sizes = [pair[min(other, 1)] for other in range(world_size)]
        samples = torch.arange(1.0, sum(sizes) + 1)
        expected = samples.mean().item()
        got = gradient(samples.split(sizes)[rank], device)
        if got is None:  # on all ranks alike, so no rank is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return {"solved": False}
        if abs(got - expected) > 1e-4:
            raise AssertionError(f"shards {sizes}: {got:.4f}, expected {expected}")
        print(f"[rank {rank}] shards {sizes}: gradient {got:.1f}", flush=True)
        facts["gradients"].append(got)
        facts["expected"].append(expected)
    return facts
