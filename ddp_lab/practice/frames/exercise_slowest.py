"""Exercise: find the slow rank, from the seconds that each rank has waited.

Each rank knows only how long its own backward() took. Fill in slowest():

    [rank 0] not yet
"""

import json

import torch.distributed as dist

OWN = 0.010, 0.013, 0.011, 0.012  # seconds until a rank calls backward(), in turn
BACKWARD, LATE = 0.020, 0.007  # seconds of work in it; what makes a rank the slowest


def slowest(seconds, device):
    return None  # the cell's function stands here


def in_backward(late, world_size):
    """By rank, how long each is in backward() when the rank `late` is the slowest."""
    called = [OWN[rank % len(OWN)] for rank in range(world_size)]
    called[late] = max(called) + LATE
    return [max(called) + BACKWARD - start for start in called]


def main(rank, world_size, device):
    found = []
    for late in reversed(range(world_size)):
        answer = slowest(in_backward(late, world_size)[rank], device)
        if answer is None:  # on all ranks alike, so nobody is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return
        if answer != late:
            raise AssertionError(f"found rank {answer}, expected rank {late}")
        found.append(answer)
    print(f"[rank {rank}] slow were, in turn, the ranks {found}", flush=True)
    return {"solved": True, "found": found}
