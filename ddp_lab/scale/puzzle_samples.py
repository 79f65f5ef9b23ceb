"""Puzzle: which samples of a step a rank works on, on a mesh pipeline x data x tensor.

    torchrun --standalone --nproc-per-node 8 ddp_lab/scale/puzzle_samples.py

Until `samples` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/21_choose_a_layout.ipynb.
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
SHAPES = {2: (1, 2, 1), 3: (1, 3, 1), 4: (1, 2, 2), 8: (2, 2, 2)}  # by ranks
OTHERS = (4, 2, 2), (2, 3, 4), (3, 1, 2), (1, 4, 2)  # which are asked about, too


def samples(rank, pipeline, data, tensor, batch):
    """Return the samples, of 0 to batch - 1, that a rank works on: neighbors.

    Sizes of the mesh; tensor runs fastest, and data divides the batch.
    """
    return None  # your code here


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
