"""Exercise: rebuild the buckets, as torch's DDP does in its second step.

The layers are used in an order of which their registration says nothing:

    [rank 0] not yet
"""

import secrets
from functools import partial

import torch
import torch.distributed as dist

SIZES = [600, 700, 300, 600, 300, 800, 500, 200]  # bytes of the gradients
ORDER = [3, 2, 4, 0, 1, 7, 5, 6]  # in which they come
CAP = 900  # bytes: a bucket is full when it has as many, or more


def rebuild(order, sizes, cap, device):
    return None  # the cell's function stands here


def cases(world_size):
    """Sizes, and by rank the order: first one for all ranks, then each its own."""
    numbers, drawn = range(len(SIZES)), [(SIZES, [ORDER] * world_size)]
    for _ in range(4):
        sizes = [100 + secrets.randbelow(700) for _ in numbers]
        shuffled = partial(secrets.SystemRandom().sample, numbers, len(numbers))
        orders = [shuffled() for _ in range(world_size)]
        drawn.append((sizes, orders))
    dist.broadcast_object_list(drawn)  # rank 0's cases are now on all ranks
    return drawn


def leaves(buckets, order):
    """After how many gradients each bucket leaves; none before the one ahead of it."""
    full, at = [], {weight: turn + 1 for turn, weight in enumerate(order)}
    for bucket in buckets:
        full.append(max([*full[-1:], *(at[weight] for weight in bucket)]))
    return full


def check(buckets, order, sizes):
    """Raise unless the buckets follow rank 0's order, each closed when it is full."""
    if sum(buckets, []) != order:
        raise AssertionError(f"{buckets} do not follow rank 0's order, {order}")
    for bucket in buckets:
        held = [sizes[weight] for weight in bucket]
        is_last = bucket is buckets[-1]
        too_little = sum(held) < CAP and not is_last
        if not held or too_little or sum(held[:-1]) >= CAP:
            raise AssertionError(f"a bucket holds {held} bytes, and the limit is {CAP}")


def main(rank, world_size, device):
    facts = {"solved": True}
    for sizes, orders in cases(world_size):
        got = rebuild(list(orders[rank]), list(sizes), CAP, device)
        found = [None] * world_size
        if got is not None:
            got = [list(map(int, bucket)) for bucket in got]  # also of tensors
        dist.all_gather_object(found, got)  # every rank now has the buckets of all
        if None in found:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        buckets = found[rank]
        if any(other != found[0] for other in found):
            raise AssertionError(f"the ranks' buckets differ: {found}")
        check(buckets, orders[0], sizes)
        if "leaves" not in facts:
            facts["leaves"] = leaves(buckets, orders[0])
            print(f"[rank {rank}] they leave after {facts['leaves']}", flush=True)
    return facts
