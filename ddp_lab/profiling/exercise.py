"""Exercise: a stream that goes on where it stopped, by rank and worker.

    torchrun --standalone --nproc-per-node 3 ddp_lab/profiling/exercise.py

Each rank takes some batches, stops, resumes, and takes the rest; in five ways:

    [rank 0] not yet

Written by notebooks/10_profile_a_step.ipynb.
"""

import gc
import json
import os
import warnings
from collections import Counter
from contextlib import contextmanager
from itertools import islice

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

# Samples, batch, batches before the stop, workers. Every batch before it is full.
CASES = (60, 2, 3, 2), (61, 2, 4, 2), (90, 3, 0, 2), (83, 2, 5, 3), (50, 4, 2, 0)


def stream(size, batch, done, rank, world_size):
    """Return an iterable of this worker's samples, out of range(size), that are left.

    It is called where __iter__ runs: get_worker_info() tells the worker, or is None.
    Every rank has taken `done` batches of `batch` samples from its loader before.
    Every sample must come once, before the stop or after it, on whichever rank.
    """
    return None  # your code here


class Stream(IterableDataset):
    """What is left of the samples, for each worker of this rank."""

    def __init__(self, *case):
        self.case = case

    def __iter__(self):
        left = stream(*self.case)
        return iter([] if left is None else left)


def taken(case, rank, world_size):
    """Return the samples that this rank takes before the stop, and those after it."""
    size, batch, done, workers = case
    size, parts = size * world_size // 2, []
    for before, count in ((0, done), (done, None)):
        data = Stream(size, batch, before, rank, world_size)
        loader = DataLoader(data, batch, num_workers=workers)
        batches = list(islice(loader, count))
        if count is not None and sum(map(len, batches)) not in (0, count * batch):
            raise AssertionError(f"{case}: a batch before the stop is not full")
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
        counts = Counter(before + after)
        odd = [i for i in range(size) if counts[i] != 1]
        told = f"{size} samples, stop after {case[2]} batches, {case[3]} workers"
        print(f"[rank {rank}] {told}: {len(odd)} wrong", flush=True)
        if odd or len(counts) != size:
            first = next(iter(odd or sorted(counts)[size:]))
            raise AssertionError(f"{told}: {first} came {counts[first]} times")
    return {"solved": True}


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
