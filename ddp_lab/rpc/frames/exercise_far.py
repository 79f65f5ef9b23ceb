"""Exercise: the mean and the spread of numbers that lie on other machines.

Every worker has six shards, and needs 0.2 s to read one. The target for worker 0:
at most 0.8 s for all of them, and at most three numbers that travel for each.

    [rank 0] not yet: write summary() and statistics()
"""

import json
import time

import torch
from torch.distributed import rpc

SHARDS, SIZE = 6, 100_000  # of each worker; numbers in a shard
MOST_SECONDS, MOST_NUMBERS = 0.8, 3  # for all shards; for each shard


def summary(numbers):
    return None  # the cell's function stands here


def statistics(names):
    return None  # the cell's function stands here


def read(shard):
    """Run by every worker: read a shard of its own, slowly, and sum it up."""
    time.sleep(0.2)
    return summary(shard_of(rpc.get_worker_info().id, shard))


def shard_of(rank, shard):
    generator = torch.Generator().manual_seed(100 * rank + shard)
    return rank + shard + torch.randn(SIZE, generator=generator)


def travelled():
    """How many numbers come for a shard: those in tensors, and those beside them."""
    result = summary(shard_of(1, 0))
    parts = result if isinstance(result, tuple | list) else [result]
    return sum(torch.as_tensor(part).numel() for part in parts)


def judge(world_size):
    """Raise unless the numbers are right and the target is met."""
    start = time.monotonic()
    mean, spread = statistics([f"worker{rank}" for rank in range(1, world_size)])
    seconds = time.monotonic() - start
    ranks = range(1, world_size)
    truth = torch.cat([shard_of(r, s) for r in ranks for s in range(SHARDS)]).double()
    if abs(mean - truth.mean()) > 1e-3:
        raise AssertionError(f"the mean is {mean}, expected {truth.mean():.4f}")
    expected = truth.std(correction=0)
    if abs(spread - expected) > 1e-3:
        raise AssertionError(f"the deviation is {spread}, expected {expected:.4f}")
    numbers = travelled()
    if numbers > MOST_NUMBERS:
        raise AssertionError(f"{numbers} numbers a shard, at most {MOST_NUMBERS}")
    if seconds > MOST_SECONDS:
        raise AssertionError(f"{seconds:.1f} s, at most {MOST_SECONDS} s")
    return f"solved: {numbers} numbers a shard, {seconds:.1f} s"


def tell(text, solved):
    """Run by every worker: what came of it."""
    print(f"[rank {rpc.get_worker_info().id}] {text}", flush=True)
    print(json.dumps({"solved": solved}), flush=True)


def main(rank, world_size):
    if rank != 0:
        return  # as far as this line; it serves calls until all are here
    try:
        text, solved = judge(world_size), True
    except NotImplementedError:
        text, solved = "not yet: write summary() and statistics()", False
    for other in range(world_size):
        rpc.rpc_sync(f"worker{other}", tell, args=(text, solved))
