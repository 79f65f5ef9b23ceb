"""Puzzle: what each stage of a pipeline does, tick by tick, under GPipe.

    torchrun --standalone --nproc-per-node 3 ddp_lab/model/puzzle_ticks.py

Until `ticks` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/14_model_parallel.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

MICRO = 3, 1, 2, 5  # micro-batches: the first number is shown
STAGES = 1, 2, 3, 6  # of pipelines that each rank lists as a whole


def ticks(rank, stages, m):
    """List what this stage does in each tick of GPipe: "F0", ..., "B0", or "idle".

    A forward takes one tick, and so does a backward; the picture has m = 3.
    """
    return None  # your code here


def goal(rank, stages, m):
    """What this stage does in each tick; forward and backward take one each."""
    row = ["idle"] * (2 * (m + stages - 1))
    for i in range(m):
        row[rank + i] = f"F{i}"  # one tick after the stage to the left
        row[-1 - rank - i] = f"B{i}"  # the last one forward is the first one back
    return row


def trace(row):
    shown = ["" if does == "idle" else str(does) for does in row]
    return {"calls": [["tick", None, does] for does in shown], "holds": None}


def main(rank, world_size, device):
    for m in MICRO:
        target = goal(rank, world_size, m)
        if m == MICRO[0]:
            print(json.dumps({"target": trace(target)}), flush=True)
        row = ticks(rank, world_size, m)
        got = None if row is None else list(row)
        everyone = [None] * world_size
        # Every rank now knows what all did, so that all come to one verdict.
        dist.all_gather_object(everyone, got == target)
        if got is None and not any(everyone):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if m == MICRO[0]:
            print(json.dumps({"yours": trace(got or [])}), flush=True)
        if wrong := [r for r in range(world_size) if not everyone[r]]:
            raise AssertionError(f"ranks {wrong} differ from the target, m = {m}")
    for stages in STAGES:
        rows = [list(ticks(stage, stages, 4)) for stage in range(stages)]
        if rows != [goal(stage, stages, 4) for stage in range(stages)]:
            raise AssertionError(f"with {stages} stages they differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
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
