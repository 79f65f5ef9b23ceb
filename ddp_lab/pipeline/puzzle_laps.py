"""Puzzle: which stages a rank has, if the pipeline goes there and back.

    torchrun --standalone --nproc-per-node 4 ddp_lab/pipeline/puzzle_laps.py

Until `stages` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/19_pipelines.ipynb.
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
OTHERS = (3, 2), (4, 1), (2, 3), (5, 4)  # ranks and laps that are asked about, too


def stages(rank, p, laps):
    """Return a rank's stages, one for each lap, if the pipeline goes there and back.

    Lap 0 goes from rank 0 to rank p - 1, lap 1 back to rank 0, lap 2 there again, ...
    """
    return None  # your code here


def goal(p, laps):
    """By rank, its stages: walk along all of them, and turn around at both ends."""
    ranks = sum((list(range(p))[:: 1 - 2 * (lap % 2)] for lap in range(laps)), [])
    return [[s for s, there in enumerate(ranks) if there == r] for r in range(p)]


def asked(p, laps):
    """What the reader's lines say for each of p ranks."""
    # If these lines never end, the rank shows where it is, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    said = [stages(rank, p, laps) for rank in range(p)]
    faulthandler.cancel_dump_traceback_later()
    return [None if each is None else [*map(index, each)] for each in said]


def trace(p, held):
    return {"calls": [["of", None, f"{2 * p} stages"]], "holds": held}


def main(rank, world_size, device):
    target = goal(world_size, 2)[rank]
    print(json.dumps({"target": trace(world_size, target)}), flush=True)
    got = asked(world_size, 2)
    if None in got:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    print(json.dumps({"yours": trace(world_size, got[rank])}), flush=True)
    dist.barrier()  # so that all tell theirs before one of them may raise
    for p, laps in ((world_size, 2), *OTHERS):
        if asked(p, laps) != goal(p, laps):
            raise AssertionError(f"{p} ranks, {laps} laps: some have other stages")
    print(f"[rank {rank}] as the target, and in {len(OTHERS)} more cases", flush=True)
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
