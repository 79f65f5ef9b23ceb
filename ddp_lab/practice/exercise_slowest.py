"""Exercise: find the slow rank, from the seconds that each rank has waited.

    torchrun --standalone --nproc-per-node 3 ddp_lab/practice/exercise_slowest.py

Each rank knows only how long its own backward() took. Fill in slowest():

    [rank 0] not yet

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

ROUNDS = 10  # in each, one rank is slow
OWN = 0.010, 0.013, 0.011, 0.012  # seconds until a rank calls backward(), in turn
LATE = 0.007  # what makes a rank the slowest


def slowest(seconds, device):
    """Return the rank that called backward() last: the same int on every rank.

    `seconds` is how long *this* rank was in backward(), from its call to its return.
    All ranks return together, when the last one to call it is done.
    A tensor for a collective must be on `device`.
    """
    return None  # your code here


def in_backward(late, work, world_size):
    """By rank, how long each is in backward(), with `work` in it, if `late` is slow."""
    called = [OWN[rank % len(OWN)] for rank in range(world_size)]
    called[late] = max(called) + LATE
    return [max(called) + work - start for start in called]


def main(rank, world_size, device):
    draws = [(random.randrange(world_size), random.random()) for _ in range(ROUNDS)]
    dist.broadcast_object_list(draws, src=0)  # every rank now holds what rank 0 drew
    slow, found = [late for late, _ in draws], []
    for late, work in draws:
        seconds = in_backward(late, work, world_size)
        answer = slowest(seconds[rank], device)
        if answer is None:  # on all ranks alike, so no rank is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return {"solved": False}
        answer = int(answer)
        if answer != late:
            told = ", ".join(f"{each:.3f}" for each in seconds)
            told = f"the ranks were in backward() for {told} s"
            raise AssertionError(f"found rank {answer}, expected {late}; {told}")
        found.append(answer)
    print(f"[rank {rank}] the slow ranks, in turn: {found}", flush=True)
    return {"solved": True, "found": found, "late": slow}


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
