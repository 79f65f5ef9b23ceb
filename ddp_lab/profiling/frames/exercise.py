"""Exercise: a stream that goes on where it stopped, by rank and worker.

Each rank takes some batches, stops, resumes, and takes the rest; in five ways:

    [rank 0] not yet
"""

import warnings
from collections import Counter
from itertools import islice

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

# Samples, batch, batches before the stop, workers. Every batch before it is full.
CASES = (60, 2, 3, 2), (61, 2, 4, 2), (90, 3, 0, 2), (83, 2, 5, 3), (50, 4, 2, 0)


def stream(size, batch, done, rank, world_size):
    return None  # the cell's function stands here


class Stream(IterableDataset):
    """What is left of the samples, for each worker of this rank."""

    def __init__(self, *case):
        self.case = case

    def __iter__(self):
        left = stream(*self.case)
        if left is None:
            return iter([])
        if not (left := list(left)):
            raise AssertionError("a worker reads nothing")
        return iter(left)


def taken(case, rank, world_size):
    """Return the samples that this rank takes before the stop, and those after it."""
    size, batch, done, workers = case
    size, parts = size * world_size // 2, []
    for before, count in ((0, done), (done, None)):
        data = Stream(size, batch, before, rank, world_size)
        loader = DataLoader(data, batch, num_workers=workers)
        batches = list(islice(loader, count))
        parts.append([int(sample) for each in batches for sample in each])
    return size, parts


def main(rank, world_size, device):
    warnings.filterwarnings("ignore", "This DataLoader will create")  # they are idle
    for case in CASES:
        size, mine = taken(case, rank, world_size)
        every = [None] * world_size
        dist.all_gather_object(every, mine)  # every rank now knows what all have taken
        before, after = (
            [sample for parts in every for sample in parts[place]] for place in (0, 1)
        )
        if not before and not after:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if {len(parts[0]) for parts in every} != {case[1] * case[2]}:
            raise AssertionError(f"{case}: a batch before the stop is not full")
        shares = [sum(map(len, parts)) for parts in every]
        if max(shares) > 1.5 * min(shares):
            raise AssertionError(f"{case}: samples by rank {shares}")
        counts = Counter(before + after)
        odd = [i for i in range(size) if counts[i] != 1]
        told = f"{size} samples, stop after {case[2]} batches, {case[3]} workers"
        print(f"[rank {rank}] {told}: {len(odd)} wrong", flush=True)
        if odd or len(counts) != size:
            first = next(iter(odd or sorted(counts)[size:]))
            raise AssertionError(f"{told}: {first} came {counts[first]} times")
    return {"solved": True}
