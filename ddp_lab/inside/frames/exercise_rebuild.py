"""Exercise: rebuild the buckets, as torch's DDP does in its second step.

The layers are used in an order of which their registration says nothing:

    [rank 0] not yet
"""

import secrets

import torch
import torch.distributed as dist

SIZES = 600, 200, 700, 100, 400, 300, 500, 800  # bytes of the gradients
CAP = 900  # bytes: a bucket is full when it has as many, or more


def rebuild(order, sizes, cap, device):
    return None  # the cell's function stands here


def reverse(sizes, cap):
    """The buckets of the first step: from the last weight to the first."""
    buckets, held = [[]], 0
    for weight in reversed(range(len(sizes))):
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets


def leaves(buckets, order):
    """After how many gradients each bucket leaves; none before the one ahead of it."""
    full, at = [], {weight: turn + 1 for turn, weight in enumerate(order)}
    for bucket in buckets:
        full.append(max([*full[-1:], *(at[weight] for weight in bucket)]))
    return full


def orders(world_size):
    """By rank, the order in which gradients are made: here one for all, there not."""
    first = [3, 6, 0, 5, 2, 7, 1, 4]
    drawn = [[first] * world_size]
    for _ in range(4):
        mine = list(range(len(SIZES)))
        rows = [sorted(mine, key=lambda _: secrets.randbits(30)) for _ in range(world_size)]
        drawn.append(rows)
    dist.broadcast_object_list(drawn)  # rank 0's are now on all ranks
    return drawn


def truth(order):
    """What has to come out: rank 0's order, cut where a bucket is full."""
    buckets, held = [[]], 0
    for weight in order:
        if held >= CAP:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += SIZES[weight]
    return buckets


def main(rank, world_size, device):
    shown = None
    for rows in orders(world_size):
        found = [None] * world_size
        got = rebuild(list(rows[rank]), list(SIZES), CAP, device)
        dist.all_gather_object(found, got)  # every rank now has the buckets of all
        if None in found:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if any(each != found[0] for each in found):
            raise AssertionError(f"the ranks' buckets differ: {found}")
        if sorted(sum(got, [])) != sorted(range(len(SIZES))):
            raise AssertionError(f"not every gradient is in one bucket: {got}")
        early = leaves(got, rows[0])
        if shown is None:
            shown = early
            before = leaves(reverse(SIZES, CAP), rows[0])
            print(f"[rank {rank}] leave after {early} gradients, not {before}", flush=True)
        if got != truth(rows[0]):
            raise AssertionError(f"leave after {early}, expected {leaves(truth(rows[0]), rows[0])}")
    return {"solved": True, "leaves": shown}
