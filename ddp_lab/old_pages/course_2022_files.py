"""Two lines of a course of 2022: which ranks write a file that all of them see?

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/course_2022_files.py

    [rank 0] row 16 misleads: 4, and not 1

Written by notebooks/17_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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


def writers(decides):
    """How many ranks write a file that all of them can see."""
    with TemporaryDirectory() as own:
        file = Path(told(own)[0], "file")
        writes = decides(file)
        dist.barrier()  # all ranks have decided
        if writes:
            with file.open("a") as shared:
                shared.write("x")
        dist.barrier()  # all ranks have written
        return told(len(file.read_text()))[0]


def row_16(rank, world_size):
    """`if local_rank == 0: save`, on as many machines as there are ranks."""
    local_rank = 0
    return writers(lambda file: local_rank == 0), 1


def row_18(rank, world_size):
    """`download=True` on every rank: those fetch the data who miss them."""
    SEEN["fetched"] = writers(lambda file: not file.exists())
    return SEEN["fetched"], 1


TODAY = {row_16: "misleads", row_18: "misleads"}


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
