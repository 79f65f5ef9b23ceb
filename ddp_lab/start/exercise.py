"""Exercise: share numbers among the ranks, then let every rank know their sum.

    torchrun --standalone --nproc-per-node 2 ddp_lab/start/exercise.py

Once `add_up` is written, three ranks print:

    [rank 0] read 4 numbers, knows the sum ...
    [rank 1] read 4 numbers, knows the sum ...
    [rank 2] read 3 numbers, knows the sum ...

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


def add_up(shelf):
    """Return the sum of all numbers on the shelf, on every rank, as a tensor.

    The numbers lie at the places 0, 1, ..., len(shelf) - 1. Each rank calls
    shelf.read(places) once, with a list or a range, and gets the numbers at these
    places as a tensor. Together the ranks read each place once, and none reads over
    one more than another. `torch` and `dist`, torch.distributed, are imported already.
    """
    return None  # your code here


class Shelf:
    """Numbers that appear when they are read; a rank may read once."""

    def __init__(self, length, known, device):
        self.length, self.known, self.device = length, known, device
        self.places, self.numbers = None, []

    def __len__(self):
        return self.length

    def read(self, places):
        if self.places is not None:
            raise AssertionError("this rank has read already")
        self.places = [range(self.length)[place] for place in places]
        # They appear only now: no rank can look at the numbers of another one.
        drawn = [secrets.randbelow(1000) for _ in self.places]
        self.numbers = self.places if self.known else drawn
        return torch.tensor(self.numbers, dtype=torch.int64, device=self.device)


def check_places(read, length):
    """Each place was read once, and the shares are equal, or differ by one."""
    if sorted(sum(read, [])) != list(range(length)):
        raise AssertionError(f"of {length} numbers the ranks read the places {read}")
    sizes = [len(places) for places in read]
    if max(sizes) > min(sizes) + 1:
        raise AssertionError(f"the ranks read {sizes} numbers: share them evenly")


def main(rank, world_size, device):
    # 11 numbers whose sum is known; at random, as many as rank 0 draws, and too few.
    drawn = secrets.randbelow(12)
    lengths = [11, (7 + drawn) * world_size + 1, world_size - 1]  # 1 is left over
    dist.broadcast_object_list(lengths, src=0)  # every rank now holds rank 0's lengths
    facts = {}
    for length in lengths:
        shelf = Shelf(length, not facts, device)
        total = add_up(shelf)
        mine = shelf.places or [], sum(shelf.numbers)
        answers = [None] * world_size
        # Every rank ends with the answers of all, so all come to one verdict.
        answer = (*mine, None if total is None else int(total))
        dist.all_gather_object(answers, answer)
        read, sums, totals = (list(column) for column in zip(*answers, strict=True))
        if totals == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        check_places(read, length)
        if totals != [sum(sums)] * world_size:
            raise AssertionError(f"the sums {totals}, expected {sum(sums)} everywhere")
        if not facts:
            knows = f"read {len(read[rank])} numbers, knows the sum {totals[rank]}"
            print(f"[rank {rank}] {knows}", flush=True)
            facts = {"solved": True, "read": read[rank], "total": totals[rank]}
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
