"""What a tutorial of 2017 promises, and what today's PyTorch brings.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/tutorial_2017.py

    [rank 0] row 5 misleads: 12, and not 6

Written by notebooks/17_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import time
import warnings
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SEEN = {}  # more numbers for the notebook


def judge(line, *given):
    """Try an old line; return its fate, and what it says or brings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            brings, promised = line(*given)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return ("hangs" if "timed out" in said else "stops"), said
    if said := [str(w.message) for w in caught if "deprecated" in str(w.message)]:
        return "warns", said[0]
    if brings == promised:
        return "holds", str(brings)
    return "misleads", f"{brings}, and not {promised}"


def told(fact):
    """What each rank tells, in a list that every rank now holds."""
    facts = [None] * dist.get_world_size()
    dist.all_gather_object(facts, fact)
    return facts


def row_4(rank, world_size):
    """Any commutative operation: addition, as a function."""
    mine = torch.ones(1)
    dist.all_reduce(mine, op=lambda a, b: a + b)  # would leave the sum of all ranks
    return mine.item(), float(world_size)


def row_5(rank, world_size):
    """Six collectives: and those that came later, if they agree with arithmetic."""
    mine, every = torch.full((world_size,), rank), [*range(world_size)]
    rows, part, cells = mine.repeat(world_size), mine[:1].clone(), mine.clone()
    dist.all_gather_into_tensor(rows, mine)  # every rank now holds all rows
    dist.reduce_scatter_tensor(part, mine)  # every rank now holds a number of the sum
    dist.all_to_all_single(cells, mine)  # every rank now holds a number of each row
    words = [f"of {rank}"]
    dist.broadcast_object_list(words, src=0)  # every rank now holds rank 0's word
    dist.monitored_barrier(timeout=timedelta(seconds=30))  # knows who is missing
    found = rows[::world_size].tolist(), part.item(), cells.tolist(), told(rank), words
    if found != (every, sum(every), every, every, ["of 0"]):
        raise AssertionError(f"{found}")
    return 6 + len(found) + 1, 6  # and the barrier


def row_8(rank, world_size):
    """send waits for recv: one number, and rank 1 comes late."""
    number, moment = torch.ones(1), 0
    if rank == 1:
        time.sleep(0.2)
        moment = time.time()
        dist.recv(number, src=0)
    if rank == 0:
        dist.send(number, dst=1)
        moment = time.time()
    sent, asked, *_ = told(moment)
    order = ["send returns", "recv is called"]
    return order if sent < asked else order[::-1], ["recv is called", "send returns"]


def row_7(rank, world_size):
    """Rank 1 looks before wait(): first too early, then once the number is there."""
    looks, token, box = [], torch.ones(1), torch.zeros(1)
    if rank == 0:
        dist.recv(token, src=1)  # rank 1 has looked
        dist.send(torch.ones(1), dst=1)
    if rank == 1:
        work = dist.irecv(box, src=0)  # box will hold rank 0's number
        looks.append(box.item())
        dist.send(token, dst=0)
        while not box:
            time.sleep(0.001)
        looks.append(box.item())
        work.wait()
    return told(looks)[1], [0.0, 1.0]


TODAY = {row_4: "stops", row_5: "misleads", row_7: "holds", row_8: "holds"}


def main(rank, world_size, device):
    found = {}
    for line, expected in TODAY.items():
        row = line.__name__.removeprefix("row_")
        fate, said = found[row] = judge(line, rank, world_size)
        if rank == 0:
            print(f"[rank 0] row {row} {fate}: {said}", flush=True)
        if fate != expected:
            raise AssertionError(f"row {row} {fate}: {said}; expected: {expected}")
    return {"rows": found} | SEEN


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
