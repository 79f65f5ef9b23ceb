"""Exercise: share numbers out among the ranks, then tell every rank their sum.

    torchrun --standalone --nproc-per-node 2 ddp_lab/start/exercise.py

Once `add_up` is written, two ranks print:

    [rank 0] took 6 numbers, knows the sum ...
    [rank 1] took 5 numbers, knows the sum ...

Written by notebooks/00_start_here.ipynb.
"""

import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def add_up(shelf, rank, world_size):
    """Return the sum of all numbers on the shelf, on every rank, as a tensor.

    There are len(shelf) numbers. Each rank calls shelf.take(start, stop) once, and gets
    those from place `start` up to, but not including, place `stop`, as a tensor.

    Together the ranks take each number once: rank 0 the first ones, rank 1 the next
    ones, and so on. Their pieces differ by one number at most, and the longer pieces
    come first: 11 numbers make 6 and 5 on two ranks, 4, 4 and 3 on three.

    `torch` and `dist`, which is torch.distributed, are imported already.
    """
    return None  # your code here


class Shelf:
    """A row of places, of which a rank may take one piece, and only one."""

    def __init__(self, length, known, device):
        self.length, self.known, self.device = length, known, device
        self.taken, self.numbers = None, []

    def __len__(self):
        return self.length

    def take(self, start, stop):
        if self.taken is not None:
            raise AssertionError("this rank has taken a piece already")
        self.taken = list(range(self.length))[start:stop]
        # They appear only now: no rank can look at the numbers of another one.
        drawn = [secrets.randbelow(1000) for _ in self.taken]
        self.numbers = self.taken if self.known else drawn
        return torch.tensor(self.numbers, dtype=torch.int64, device=self.device)


def shared_out(length, world_size):
    """The places that each rank should take."""
    lengths = [len(range(r, length, world_size)) for r in range(world_size)]
    ends = [sum(lengths[: r + 1]) for r in range(world_size)]
    pairs = zip(ends, lengths, strict=True)
    return [list(range(end - count, end)) for end, count in pairs]


def main(rank, world_size, device):
    # 11 numbers whose sum is known; then 13, and as many as rank 0 draws, at random.
    lengths = [11, 13, 20 + secrets.randbelow(40)]
    dist.broadcast_object_list(lengths, src=0)  # every rank now holds rank 0's lengths
    facts = {}
    for length in lengths:
        shelf = Shelf(length, length == 11, device)
        total = add_up(shelf, rank, world_size)
        mine = shelf.taken, sum(shelf.numbers), None if total is None else int(total)
        answers = [None] * world_size
        # Every rank ends with the answers of all, so all come to one verdict.
        dist.all_gather_object(answers, mine)
        taken, sums, totals = (list(column) for column in zip(*answers, strict=True))
        if totals == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        expected = shared_out(length, world_size)
        if taken != expected:
            raise AssertionError(f"the places {taken}, expected {expected}")
        if totals != [sum(sums)] * world_size:
            raise AssertionError(f"the sums {totals}, expected {sum(sums)}")
        if not facts:
            took = f"took {len(taken[rank])} numbers"
            print(f"[rank {rank}] {took}, knows the sum {totals[rank]}", flush=True)
            facts = {"solved": True, "taken": taken[rank], "total": totals[rank]}
    return facts


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
