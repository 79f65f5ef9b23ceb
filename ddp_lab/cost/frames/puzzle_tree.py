"""Puzzle: who sends to whom in a tree, in each step, until rank 0 has the sum.

Until `goes_to` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
from operator import index

import torch
import torch.distributed as dist

PATIENCE = 3  # seconds
SIZES = (2, 3, 5, 8, 13)  # other numbers of ranks that are asked about


def goes_to(rank, step):
    return None  # the cell's function stands here


def goal(n):
    """By step and rank, where each sends: half of those left, to the others."""
    left, steps = list(range(n)), []
    while len(left) > 1:
        pairs = dict(zip(left[1::2], left[::2], strict=False))
        steps.append([pairs.get(rank) for rank in range(n)])
        left = left[::2]
    return steps


def asked(n):
    """What the reader's lines say, for as many steps as there are in the goal."""
    # If these lines never end, the rank shows where it is, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    said = [[goes_to(rank, step) for rank in range(n)] for step in range(len(goal(n)))]
    faulthandler.cancel_dump_traceback_later()
    said = [[None if r is None else index(r) for r in targets] for targets in said]
    for step, targets in enumerate(said):
        for rank, target in enumerate(targets):
            if target is not None and not (0 <= target < n and target != rank):
                raise AssertionError(f"step {step}: no message {rank} to {target}")
    return said


def play(steps, rank, sums):
    """Send and add up; return what this rank did. Rank r brings 2 to the power r."""
    calls, mine = [["brings", None, str(sums[rank])]], torch.tensor(sums[rank])
    for targets in steps:
        sends, got = [], torch.zeros_like(mine)
        if (target := targets[rank]) is not None:
            calls.append(["send", target, str(mine.item())])
            sends = [dist.isend(send_buf := mine.clone(), target)]
        for source in (r for r, to in enumerate(targets) if to == rank):
            dist.recv(got, source)  # holds the sum of some ranks
            calls.append(["recv", source, ""])
            mine += got
        for work in sends:
            work.wait()
            del send_buf
    return {"calls": calls, "holds": [mine.item()]}


def main(rank, world_size, device):
    sums, target = [2**r for r in range(world_size)], goal(world_size)
    dist.barrier()  # over NCCL, all ranks have to meet before pairs do
    print(json.dumps({"target": play(target, rank, sums)}), flush=True)
    said = asked(world_size)
    if not any(each is not None for targets in said for each in targets):
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    print(json.dumps({"yours": play(said, rank, sums)}), flush=True)
    dist.barrier()  # so that all tell theirs before one of them may raise
    for n in (world_size, *SIZES):
        if asked(n) != goal(n):
            raise AssertionError(f"with {n} ranks, others send in some step")
    print(f"[rank {rank}] as the target, and for {len(SIZES)} more sizes", flush=True)
    return {"solved": True}
