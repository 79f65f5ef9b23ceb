"""Exercise: the layout that trains a model in time for the fewest GPU-hours.

Seven trainings, drawn anew in each run, priced by the planner. Until
cheapest() returns a layout:

    [rank 0] not yet: write cheapest()
"""

import random
from dataclasses import replace
from itertools import pairwise
from math import inf

import torch.distributed as dist

from ddp_lab.scale.road import GB, H100, Cut, Training, cuts, devices, fill, seconds

CLOSE, DAY = 1.01, 24 * 3600
SIZES = (8, 16, 32, 64, 128, 256)  # of a job: whole machines of eight


def cheapest(t, tokens, days):
    return None  # the cell's function stands here


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
    hours = [fewest(lambda c, n=n: devices(c) == n) for n in SIZES]
    times = {
        "as few as can be": fewest(lambda c: devices(c) == small) / best,
        "nothing recomputed": fewest(lambda c: not c.recompute) / best,
        "tensor 2 at most": fewest(lambda c: c.tensor <= 2) / best,
        "however late": best / late,
        "no hybrid sharding": fewest(lambda c: c.kind != "hybrid sharded") / best,
        "up to the first rise": until_rise(hours) / best,
        "down to the first rise": until_rise(hours[::-1]) / best,
    }
    return best, min(times[trap], hours[-1] / best)


def until_rise(hours):
    """The hours of the last size before they rise, of those that are in time."""
    there = [each for each in hours if each < inf]
    return next((one for one, other in pairwise(there) if other > one), there[-1])


TRAPS = {  # what to draw so that a shortcut costs more: length, sequences, fast wires
    "as few as can be": (4096, (128, 256), (20, 50, 360)),
    "nothing recomputed": (8192, (128, 256), (20,)),
    "tensor 2 at most": (16384, (16, 32, 64, 128), (360,)),
    "however late": (4096, (128, 256), (20, 50, 360)),
}
HILLS = {  # so rare that they were searched for: layers, width, length, sequences,
    # wires inside and outside of a machine, billions of tokens, days
    "no hybrid sharding": (
        (32, 5888, 4096, 256, 50, 1, 159, 17),
        (40, 5888, 4096, 256, 360, 3, 220, 32),
        (32, 6656, 4096, 128, 360, 6, 276, 82),
    ),
    "up to the first rise": (
        (40, 5888, 4096, 256, 50, 6, 101, 12),
        (40, 5632, 4096, 128, 50, 6, 64, 15),
    ),
    "down to the first rise": (
        (40, 6144, 16384, 64, 360, 6, 111, 48),
        (32, 7168, 4096, 256, 360, 6, 62, 61),
        (40, 5632, 4096, 128, 50, 6, 64, 60),
    ),
}


def draw(seed):
    """A training for each shortcut, which is dearer there than the best layout."""
    chance, cases = random.Random(seed), []
    for trap in [*TRAPS, *HILLS]:
        gain = 0
        while gain < 1.03:
            if trap in HILLS:
                *model, fast, slow, tokens, days = chance.choice(HILLS[trap])
                longer = chance.randrange(1, 5)  # this changes no hour's rank
                tokens, days = longer * tokens, longer * days
            else:
                *model, fast, slow = drawn(chance, *TRAPS[trap])
                tokens, days = chance.randrange(50, 300), chance.randrange(10, 90)
            t = training(*model, {"fast": fast * GB, "slow": slow * GB})
            best, gain = least(t, tokens * 1e9, days, trap)
        cases.append((t, tokens * 1e9, days, best))
    return cases


def drawn(chance, length, sequences, fast):
    layers, width = chance.choice((32, 40, 48)), 256 * chance.randrange(16, 34)
    wires = chance.choice(fast), chance.choice((1, 3, 6))
    return layers, width, length, chance.choice(sequences), *wires


def training(layers, width, length, sequences, wires):
    parameters = 12 * layers * width**2
    sizes = parameters, layers, width, sequences, length, SIZES[-1]
    return Training(*sizes, **H100 | wires)


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
    cases = draw(random.random()) if rank == 0 else [None] * len(TRAPS | HILLS)
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
