"""What a course of 2022 promises, and what today's PyTorch brings.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/course_2022.py

    [rank 0] row 13 misleads: 1, and not 3

Written by notebooks/17_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DistributedSampler

SEEN = {}  # more numbers for the notebook


def judge(line, *given):
    """Try an old line; return its fate, and what it says or brings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            brings, promised = line(*given)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return ("hangs" if "timed out" in said else "stops"), said
    if said := [str(w.message) for w in caught if "deprecated" in str(w.message)]:
        return "warns", said[0]
    if brings == promised:
        return "holds", str(brings)
    return "misleads", f"{brings}, and not {promised}"


def told(fact):
    """What each rank tells, in a list that every rank now holds."""
    facts = [None] * dist.get_world_size()
    dist.all_gather_object(facts, fact)
    return facts


def row_9(rank, world_size):
    """A picture of scatter as Broadcast: rank r would hold number r."""
    numbers = torch.arange(world_size) + rank
    dist.broadcast(numbers, src=0)  # every rank now holds rank 0's numbers
    if numbers.tolist() != told(numbers.tolist())[0]:
        raise AssertionError(f"{numbers}")
    return numbers.tolist(), [rank]


def row_13(rank, world_size):
    """A sampler that is told of no epoch: how many orders do three epochs have?"""
    sampler = DistributedSampler(range(12 * world_size))
    return len({tuple(sampler) for _ in range(3)}), 3


def row_15(rank, world_size):
    """Saving at the top of the loop: how many of three epochs are in the file?"""
    weight, after = torch.ones(1), []
    for _ in range(3):
        saved = weight.item()
        weight -= 0.1 * weight  # stands for an epoch
        after.append(weight.item())
    SEEN["saved"] = after.index(saved) + 1
    return SEEN["saved"], 3


TODAY = {row_9: "misleads", row_13: "misleads", row_15: "misleads"}


def main(rank, world_size, device):
    found = {}
    for line, expected in TODAY.items():
        row = line.__name__.removeprefix("row_")
        fate, said = found[row] = judge(line, rank, world_size)
        if rank == 0:
            print(f"[rank 0] row {row} {fate}: {said}", flush=True)
        if fate != expected:
            raise AssertionError(f"row {row} {fate}: {said}; expected: {expected}")
    return {"rows": found} | SEEN


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
