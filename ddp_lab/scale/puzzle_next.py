"""Puzzle: to which rank a stage passes its activations, on a mesh of three dimensions.

    torchrun --standalone --nproc-per-node 8 ddp_lab/scale/puzzle_next.py

Until `next_stage` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/21_all_at_once.ipynb.
"""

import faulthandler
import gc
import json
import os
from contextlib import contextmanager
from operator import index

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE = 3  # seconds
SHAPES = {2: (2, 1, 1), 3: (3, 1, 1), 4: (2, 1, 2), 8: (2, 2, 2)}  # by ranks
OTHERS = (4, 2, 2), (2, 3, 4), (3, 1, 2), (1, 4, 2)  # which are asked about, too


def next_stage(rank, pipeline, data, tensor):
    """Return the rank in this place of the next stage; after the last, the first."""
    return None  # your code here


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


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend, well = torch.device("cpu"), "gloo", False
    if count := torch.accelerator.device_count():
        kind = torch.accelerator.current_accelerator().type
        index = int(os.environ["LOCAL_RANK"]) % count
        own = dist.get_default_backend_for_device(kind)  # cuda: nccl, xpu: xccl
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]) and own != "gloo":
            backend = f"cpu:gloo,{kind}:{own}"
        if kind == "cuda" or backend != "gloo":  # gloo carries CPU and CUDA tensors
            device = torch.device(kind, index)
            torch.accelerator.set_device_index(index)
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
        well = True
    finally:
        if well or backend == "gloo":  # over NCCL a leaving rank could hang
            dist.destroy_process_group()
            gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
