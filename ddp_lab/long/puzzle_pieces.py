"""Puzzle: pieces of a sequence are dealt to the ranks, so that all compute as much.

    torchrun --standalone --nproc-per-node 4 ddp_lab/long/puzzle_pieces.py

Until `pieces` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/20_long_sequences_and_experts.ipynb.
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
SIZES = (2, 3, 4, 7, 8)  # other numbers of ranks that are asked about


def pieces(rank, n):
    """Return the two pieces, of 0 to 2 n - 1, that a rank gets.

    All ranks must compute equally many tiles, for any n.
    """
    return None  # your code here


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
