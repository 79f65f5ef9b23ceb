"""Exercise: the layout that trains a model in time for the fewest GPU-hours.

    torchrun --standalone --nproc-per-node 2 ddp_lab/scale/exercise_cheapest.py

Four trainings, drawn anew in each run, priced by the planner. Until
cheapest() returns a layout:

    [rank 0] not yet: write cheapest()

Written by notebooks/21_choose_a_layout.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager
from dataclasses import replace
from math import inf

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.scale.road import GB, H100, Cut, Training, cuts, devices, fill, seconds

CLOSE, DAY = 1.01, 24 * 3600
SIZES = (8, 16, 32, 64, 128, 256)  # of a job: whole machines of eight


def cheapest(t, tokens, days):
    """Return the layout, a Cut, that trains on `tokens` in `days` for the least money.

    t: the model, its batch, and a cluster of 256 GPUs, as the planner wants them.
    SIZES are the numbers of GPUs that you can rent, layouts(t, count) yields what
    can be done with so many, and price(t, c, tokens) tells the days that a layout
    takes and its GPU-hours: both infinite, if it does not fit.
    """
    return None  # your code here


def price(t, c, tokens):
    """The days that a layout takes, and its GPU-hours; no end if it does not fit."""
    if fill(replace(t, devices=devices(c)), c) > 1:
        return inf, inf
    steps = tokens / t.sequences / t.length
    time = steps * sum(seconds(replace(t, devices=devices(c)), c).values())
    return time / DAY, time / 3600 * devices(c)


def layouts(t, count):
    """Every layout on so many devices, with each share of recomputing."""
    for c in cuts(t, count):
        if c.kind != "remote calls" and c.rows <= 2:
            yield from (c._replace(recompute=share) for share in (0, 1))


def least(t, tokens, days, trap):
    """The fewest GPU-hours in time, and how many times as many a shortcut takes."""
    prices = [(c, *price(t, c, tokens)) for n in SIZES for c in layouts(t, n)]
    in_time = [(hours, c) for c, took, hours in prices if took <= days]

    def fewest(holds):
        return min((hours for hours, c in in_time if holds(c)), default=inf)

    best, small = fewest(bool), min((devices(c) for _, c in in_time), default=0)
    if not small:
        return inf, 0
    late = min(hours for *_, hours in prices)
    times = {
        "as few as can be": fewest(lambda c: devices(c) == small) / best,
        "nothing recomputed": fewest(lambda c: not c.recompute) / best,
        "tensor 2 at most": fewest(lambda c: c.tensor <= 2) / best,
        "however late": best / late,
    }
    all_of_them = fewest(lambda c: devices(c) == SIZES[-1]) / best
    return best, min(times[trap], all_of_them)


TRAPS = {  # what to draw so that a shortcut costs more: length, sequences, fast wires
    "as few as can be": (4096, (128, 256), (20, 50, 360)),
    "nothing recomputed": (8192, (128, 256), (20,)),
    "tensor 2 at most": (16384, (16, 32, 64, 128), (360,)),
    "however late": (4096, (128, 256), (20, 50, 360)),
}


def draw(seed):
    """A training for each shortcut, which is dearer there than the best layout."""
    chance, cases = random.Random(seed), []
    for trap, (length, sequences, fast) in TRAPS.items():
        gain = 0
        while gain < 1.03:
            layers, width = chance.choice((32, 40, 48)), 256 * chance.randrange(16, 34)
            wires = {
                "fast": chance.choice(fast) * GB,
                "slow": chance.choice((1, 3, 6)) * GB,
            }
            model = 12 * layers * width**2, layers, width, chance.choice(sequences)
            t = Training(*model, length, SIZES[-1], **H100 | wires)
            tokens, days = chance.randrange(50, 300) * 1e9, chance.randrange(10, 90)
            best, gain = least(t, tokens, days, trap)
        cases.append((t, tokens, days, best))
    return cases


def judge(t, tokens, days, fewest):
    """Return how many times the fewest hours the layout takes, or raise."""
    c = cheapest(t, tokens, days)
    if c is None:
        return None
    told = f"{t.parameters / 1e9:.0f} billion in {days} days: {c}"
    if devices(c) not in SIZES or c not in layouts(t, devices(c)):
        raise AssertionError(f"{told} is not among the layouts on 8, 16, ... or 256")
    took, hours = price(t, c, tokens)
    if took == inf:
        raise AssertionError(f"{told} does not fit")
    if took > days:
        raise AssertionError(f"{told} takes {took:.0f} days")
    if hours > CLOSE * fewest:
        raise AssertionError(f"{told}: {hours / fewest:.2f} times the hours needed")
    return hours / fewest


def main(rank, world_size, device):
    cases = draw(random.random()) if rank == 0 else [None] * len(TRAPS)
    dist.broadcast_object_list(cases)  # every rank holds rank 0's trainings
    times = [judge(*case) for case in cases]
    everyone = [None] * world_size
    dist.all_gather_object(everyone, times)  # every rank holds what all have found
    found = sum(everyone, [])
    if not any(found):
        print(f"[rank {rank}] not yet: write cheapest()", flush=True)
        return {"solved": False}
    if None in found:
        raise AssertionError(
            "for some training cheapest() found no layout; each has one"
        )
    told = ", ".join(f"{each:.3f}" for each in times)
    print(f"[rank {rank}] {told} of the fewest GPU-hours", flush=True)
    return {"solved": True, "times": times}


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
