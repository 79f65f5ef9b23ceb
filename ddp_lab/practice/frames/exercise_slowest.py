"""Exercise: find the slow rank, from the seconds that each rank has waited.

Each rank knows only how long its own backward() took. Fill in slowest():

    [rank 0] not yet
"""

import random

import torch.distributed as dist

ROUNDS = 10  # in each, one rank is slow
OWN = 0.010, 0.013, 0.011, 0.012  # seconds until a rank calls backward(), in turn
LATE = 0.007  # what makes a rank the slowest


def slowest(seconds, device):
    return None  # the cell's function stands here


def in_backward(late, work, world_size):
    """By rank, how long each is in backward(), with `work` in it, if `late` is slow."""
    called = [OWN[rank % len(OWN)] for rank in range(world_size)]
    called[late] = max(called) + LATE
    return [max(called) + work - start for start in called]


def main(rank, world_size, device):
    draws = [(random.randrange(world_size), random.random()) for _ in range(ROUNDS)]
    dist.broadcast_object_list(draws, src=0)  # every rank now holds what rank 0 drew
    slow, found = [late for late, _ in draws], []
    for late, work in draws:
        seconds = in_backward(late, work, world_size)
        answer = slowest(seconds[rank], device)
        if answer is None:  # on all ranks alike, so no rank is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return {"solved": False}
        answer = int(answer)
        if answer != late:
            told = ", ".join(f"{each:.3f}" for each in seconds)
            told = f"the ranks were in backward() for {told} s"
            raise AssertionError(f"found rank {answer}, expected {late}; {told}")
        found.append(answer)
    print(f"[rank {rank}] the slow ranks, in turn: {found}", flush=True)
    return {"solved": True, "found": found, "late": slow}
