"""Three ring all-reduces by hand: an old wrong one, its correction, and one in chunks.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/rings.py

    [rank 0] row 38 misleads: ..., not [10.0, 10.0, 10.0, 10.0]

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook

EACH = 8  # numbers that each rank brings for each, all of them r + 1


def today(fate):
    """Note the fate of a line; main fails when the line no longer has it."""
    return lambda line: ROWS.update({line: fate}) or line


def judge(line, *given):
    """Try an old line; return its fate, and what it says or brings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            brings, promised = line(*given)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return ("hangs" if "timed out" in said else "stops"), said
    said = [str(w.message) for w in caught if "deprecated" in str(w.message)]
    if said and "_single" not in said[0]:  # 2.13 and 2.14 say it of row 5's
        return "warns", said[0]
    if brings == promised:
        return "holds", str(brings)
    return "misleads", f"{brings}, not {promised}"


def told(fact):
    """Return what each rank tells, in a list that every rank now holds."""
    facts = [None] * dist.get_world_size()
    dist.all_gather_object(facts, fact)
    return facts


def pass_on(leaves, arrives):
    """Send to the right, receive from the left; return how many numbers were sent."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    swap = [
        dist.P2POp(dist.isend, leaves, (rank + 1) % world_size),
        dist.P2POp(dist.irecv, arrives, (rank - 1) % world_size),
    ]
    # `arrives` now holds what left the rank on the left.
    for work in dist.batch_isend_irecv(swap):
        work.wait()
    return leaves.numel()


@today("stops")
def row_6(rank, world_size):
    """The class of what isend and irecv return."""
    return dist.DistributedRequest, dist.Work


def of_2017(send):
    """As an old page had it: what comes in is never added."""
    recv, arrives, leaves = (torch.zeros_like(send) for _ in range(3))
    total, sent = send.clone(), 0
    for step in range(dist.get_world_size() - 1):
        sent += pass_on(leaves, arrives)
        total += send if step % 2 else recv  # neither of them is what has arrived
        leaves, arrives = arrives, leaves
    if leaves.any():
        raise AssertionError("expected messages that hold nothing but zeros")
    return total, sent


def corrected(send):
    """As the page has it today: right, and each rank sends everything every time."""
    arrives, leaves = torch.zeros_like(send), send.clone()
    total, sent = send.clone(), 0
    for _ in range(dist.get_world_size() - 1):
        sent += pass_on(leaves, arrives)
        total += arrives
        leaves, arrives = arrives, leaves
    return total, sent


def in_chunks(send):
    """As Baidu's: add on the way round, then hand the finished chunks round."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    chunks, sent = list(send.clone().chunk(world_size)), 0
    arrives = torch.zeros_like(chunks[0])
    for step in range(world_size - 1):
        sent += pass_on(chunks[(rank - step) % world_size], arrives)
        chunks[(rank - step - 1) % world_size] += arrives
    for step in range(world_size - 1):
        sent += pass_on(chunks[(rank - step + 1) % world_size], arrives)
        chunks[(rank - step) % world_size].copy_(arrives)
    return torch.cat(chunks), sent


@today("misleads")
def row_38(rank, world_size):
    """The ring of 2017: which sum does it leave on each rank?"""
    mine = torch.full((EACH * world_size,), rank + 1.0)
    right = world_size * (world_size + 1) / 2  # 1 + 2 + ...
    for way in (of_2017, corrected, in_chunks):
        total, SEEN[way.__name__] = way(mine)
        sums = told(total.unique().tolist())  # one number by rank, if all are equal
        if way is not of_2017 and sums != [[right]] * world_size:
            raise AssertionError(f"{way.__name__}: {sums}, expected {right}")
        SEEN.setdefault("sums", [number for numbers in sums for number in numbers])
    return SEEN["sums"], [right] * world_size


def main(rank, world_size, device):
    found, other = {}, []
    for line, last in ROWS.items():
        row = line.__name__.removeprefix("row_")
        fate, said = found[row] = judge(line, rank, world_size)
        if rank == 0:
            print(f"[rank 0] row {row} {fate}: {said}", flush=True)
        other += [f"row {row} {fate}, expected: {last}"] * (fate != last)
    if other:
        raise AssertionError("; ".join(other))
    return {"rows": found} | SEEN


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
