"""Puzzle: to which rank a stage passes its activations, on a mesh of three dimensions.

Until `next_stage` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
from operator import index

import torch
import torch.distributed as dist

PATIENCE = 3  # seconds
SHAPES = {2: (2, 1, 1), 3: (3, 1, 1), 4: (2, 1, 2), 8: (2, 2, 2)}  # by ranks
OTHERS = (4, 2, 2), (2, 3, 4), (3, 1, 2), (1, 4, 2)  # which are asked about, too


def next_stage(rank, pipeline, data, tensor):
    return None  # the cell's function stands here


def goal(shape):
    """By rank, the one in its place of the next stage; after the last, the first."""
    pipeline, data, tensor = shape
    stages = torch.arange(pipeline * data * tensor).view(pipeline, -1)
    return stages.roll(-1, dims=0).flatten().tolist()


def attempt(shape):
    # If these lines never end, the rank shows where it is, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    said = [next_stage(r, *shape) for r in range(len(goal(shape)))]
    faulthandler.cancel_dump_traceback_later()
    return [None if rank is None else index(rank) for rank in said]  # of a tensor, too


def trace(rank, peers):
    """What a rank does if each sends its number to its peer."""
    calls, mine = [["brings", None, str(10 * rank)]], peers[rank]
    if mine in range(len(peers)) and mine != rank:
        calls.append(["send", mine, str(10 * rank)])
    else:
        calls.append(["sends", None, f"to rank {mine}?"])
    came = [sender for sender, peer in enumerate(peers) if peer == rank != sender]
    calls += [["recv", sender, ""] for sender in came]
    return {"calls": calls, "holds": [10 * sender for sender in came] or None}


def exchange(rank, peers):
    """Send this rank's number to its peer; return the one that comes."""
    mine, came = torch.tensor(10 * rank), torch.tensor(-1)
    send = dist.P2POp(dist.isend, mine, peers[rank])
    recv = dist.P2POp(dist.irecv, came, peers.index(rank))
    for work in dist.batch_isend_irecv([send, recv]):
        work.wait()
    return came.item()


def main(rank, world_size, device):
    shape = SHAPES.get(world_size, (world_size, 1, 1))
    target = goal(shape)
    print(json.dumps({"target": trace(rank, target)}), flush=True)
    got = attempt(shape)
    if set(got) == {None}:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    print(json.dumps({"yours": trace(rank, got)}), flush=True)
    dist.barrier()  # so that all tell theirs before one of them may raise
    for mesh in (shape, *OTHERS):
        if (said := attempt(mesh)) != goal(mesh):
            raise AssertionError(f"on {mesh} the ranks send to {said}")
    if exchange(rank, got) != trace(rank, target)["holds"][0]:
        raise AssertionError("the numbers that came are not those of the stage before")
    print(f"[rank {rank}] as the target, and on {len(OTHERS)} more meshes", flush=True)
    return {"solved": True}
