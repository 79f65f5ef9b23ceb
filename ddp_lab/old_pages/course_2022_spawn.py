"""Two lines of a course of 2022: what starts processes, and what they are told.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/course_2022_spawn.py

    [rank 0] row 37 hangs: ConnectionError: ...

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import socket
import subprocess
import sys
import warnings
from argparse import ArgumentParser
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed import launch
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.run import config_from_args

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook

JOIN = """import os, sys, datetime, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
second = datetime.timedelta(seconds=1)
next(dist.rendezvous("env://", rank=0, world_size=1, timeout=second))"""


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


def ran(page, *words):
    """Run a page alone; return its exit code, and the last line of its errors."""
    command = [sys.executable, "-c", page, *words]
    end = subprocess.run(command, capture_output=True, text=True)
    return end.returncode, end.stderr.strip().split("\n")[-1]


@today("stops")
def row_36(rank, world_size):
    """A parser of --local_rank: does it read what the old launcher passes?"""
    passed = config_from_args(launch.parse_args(["old.py"]))[2][-1]
    parser = ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    parser.error = exit  # with what it says
    found = parser.parse_args([passed.replace("${local_rank}", str(rank))])
    return found.local_rank, rank


@today("hangs")
def row_37(rank, world_size):
    """Every rank of torchrun starts world_size children, which join at their port."""
    ends = [ran("")[0] for _ in range(world_size)]
    SEEN["children"] = sum(told(ends.count(0)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    _, error = told(ran(JOIN, port) if rank == 0 else None)[0]
    if error:
        raise ConnectionError(error.split(": ")[-1].split(" while")[0])
    return SEEN["children"], world_size


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
