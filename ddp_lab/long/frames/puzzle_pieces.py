"""Puzzle: pieces of a sequence are dealt to the ranks, so that all compute as much.

Until `pieces` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
from operator import index

import torch.distributed as dist

PATIENCE = 3  # seconds
SIZES = (2, 3, 4, 7, 8)  # other numbers of ranks that are asked about


def pieces(rank, n):
    return None  # the cell's function stands here


def tiles(dealt, n):
    """How many tiles each rank computes: its queries see earlier pieces, and their own.

    Raises if a piece has not exactly one rank.
    """
    if sorted(index(piece) for each in dealt for piece in each) != list(range(2 * n)):
        raise AssertionError(f"each of {2 * n} pieces needs one rank: {dealt}")
    return [sum(index(piece) + 1 for piece in each) for each in dealt]


def main(rank, world_size, device):
    brings = ["brings", None, f"{2 * world_size} pieces"]
    goal = {"calls": [brings], "holds": [2 * world_size + 1]}
    print(json.dumps({"target": goal}), flush=True)
    for n in (world_size, *SIZES):
        # If these lines never end, the rank shows where it is, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        dealt = [pieces(r, n) for r in range(n)]
        faulthandler.cancel_dump_traceback_later()
        if any(each is None for each in dealt):
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return {"solved": False}
        held = tiles(dealt, n)
        if n == world_size:
            yours = {"calls": [brings], "holds": [held[rank]]}
            print(json.dumps({"yours": yours}), flush=True)
            dist.barrier()  # so that all tell theirs before one of them may raise
        if held != [2 * n + 1] * n:
            raise AssertionError(f"{n} ranks compute {held} tiles")
    print(f"[rank {rank}] {held[0]} tiles on each of {n} ranks", flush=True)
    return {"solved": True}
