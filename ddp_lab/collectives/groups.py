"""Groups: even and odd ranks sum separately; then all call the evens' all_reduce.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/groups.py

Rank r gives 10r + 1. The program needs at least two ranks:

    [rank 3] is rank 1 of 2 in its group: 31 became 42

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
import sys
import warnings
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE = timedelta(seconds=60)  # how long a member waits before it raises


def make_groups(world_size):
    """The even and the odd ranks; every rank makes both, also the one it is not in."""
    members = [range(0, world_size, 2), range(1, world_size, 2)]
    # new_group is a collective of the world: all ranks, all groups, in the same order.
    return members, [dist.new_group(list(ranks), timeout=PATIENCE) for ranks in members]


def reduce_inside(rank, group, device):
    """The sum over my own group."""
    buf = torch.tensor([10 * rank + 1], device=device)  # (1,)
    # Every even rank ends up with the evens' sum, every odd rank with the odds'.
    dist.all_reduce(buf, op=dist.ReduceOp.SUM, group=group)
    return buf.item()


def share_first(group, ranks, device):
    """The first member's rank in the world, told to the whole group."""
    buf = torch.tensor([dist.get_rank()], device=device)  # (1,)
    # The group ends up with its first member's number; src counts in the world.
    dist.broadcast(buf, src=ranks[0], group=group)
    return buf.item()


def reduce_outside(rank, evens, device):
    """Everybody calls the evens' all_reduce, the odd ranks too."""
    buf = torch.tensor([10 * rank + 1], device=device)  # (1,)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The evens end up with their sum, an odd rank with a warning and its number.
        dist.all_reduce(buf, op=dist.ReduceOp.SUM, group=evens)
    return buf.item(), [str(warning.message) for warning in caught]


@record
def main():
    with process_group() as (rank, world_size, device):
        if world_size < 2:
            sys.exit("collectives/groups.py needs at least 2 ranks")
        members, groups = make_groups(world_size)
        ranks, group = list(members[rank % 2]), groups[rank % 2]
        place, inside = dist.get_rank(group), reduce_inside(rank, group, device)
        first = share_first(group, ranks, device)
        outside, warned = reduce_outside(rank, groups[0], device)
        print(
            f"[rank {rank}] is rank {place} of {len(ranks)} in its group:"
            f" {10 * rank + 1} became {inside}",
            flush=True,
        )
        if warned:
            print(
                f"[rank {rank}] called the even ranks' all_reduce with {10 * rank + 1}:"
                f" still {outside}, and a warning",
                flush=True,
            )
        got = [place, inside, first, outside, len(warned)]
        total = sum(10 * r + 1 for r in ranks)
        odd = rank % 2
        expected = [rank // 2, total, odd, 10 * rank + 1 if odd else total, odd]
        facts = {"place": place, "inside": inside, "first": first, "outside": outside}
        print(json.dumps(facts | {"warned": warned}), flush=True)
        dist.barrier()  # two ranks share no group, and one could leave too early
        if got != expected:
            raise AssertionError(f"the groups gave {got}, expected {expected}")


# --- the same in every program: join the group, and leave it whatever happens ---


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


if __name__ == "__main__":
    main()
