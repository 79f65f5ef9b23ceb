"""Puzzle: which samples of a step a rank works on, on a mesh pipeline x data x tensor.

Until `samples` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
from operator import index

import torch
import torch.distributed as dist

PATIENCE = 3  # seconds
SHAPES = {2: (1, 2, 1), 3: (1, 3, 1), 4: (1, 2, 2), 8: (2, 2, 2)}  # by ranks
OTHERS = (4, 2, 2), (2, 3, 4), (3, 1, 2), (1, 4, 2)  # which are asked about, too


def samples(rank, pipeline, data, tensor, batch):
    return None  # the cell's function stands here


def places(shape):
    """Where each rank is; the last dimension runs fastest."""
    return torch.cartesian_prod(*map(torch.arange, shape)).tolist()


def goal(shape, batch):
    """The samples of each rank: its place along data alone decides."""
    shares = torch.arange(batch).chunk(shape[1])
    return [shares[turn].tolist() for _, turn, _ in places(shape)]


def attempt(shape, batch):
    """What the reader's lines say for each rank of a mesh."""
    # If these lines never end, the rank shows where it is, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    said = [samples(r, *shape, batch) for r in range(len(places(shape)))]
    said = [None if each is None else [*map(index, each)] for each in said]
    faulthandler.cancel_dump_traceback_later()
    return said


def trace(place, held):
    return {"calls": [["at", None, str(tuple(place))]], "holds": held}


def main(rank, world_size, device):
    shape = SHAPES.get(world_size, (1, world_size, 1))
    place, target = places(shape)[rank], goal(shape, 4 * shape[1])
    print(json.dumps({"target": trace(place, target[rank])}), flush=True)
    got = attempt(shape, 4 * shape[1])
    if None in got:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    print(json.dumps({"yours": trace(place, got[rank])}), flush=True)
    dist.barrier()  # so that all tell theirs before one of them may raise
    for mesh in (shape, *OTHERS):
        for batch in (4 * mesh[1], 6 * mesh[1]):
            if attempt(mesh, batch) != goal(mesh, batch):
                raise AssertionError(f"{batch} samples on {mesh}: ranks have others")
    print(f"[rank {rank}] as the target, and on {len(OTHERS)} more meshes", flush=True)
    return {"solved": True}
