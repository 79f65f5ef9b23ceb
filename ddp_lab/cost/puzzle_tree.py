"""Puzzle: who sends to whom in a tree, in each step, until rank 0 has the sum.

    torchrun --standalone --nproc-per-node 4 ddp_lab/cost/puzzle_tree.py

Until `goes_to` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/12_what_communication_costs.ipynb.
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
SIZES = (2, 3, 5, 8, 13)  # other numbers of ranks that are asked about


def goes_to(rank, step):
    """Return the rank to which a rank sends in a step of the tree; None if it does not.

    Step 0: 1 to 0, 3 to 2, 5 to 4, ... Step 1: 2 to 0, 6 to 4, ... Any number of ranks.
    """
    return None  # your code here


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
