"""What an overview of 2020 promises, and what today's PyTorch brings.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/overview_2020.py

    [rank 0] row 33 misleads: 7, not 3

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import re
import warnings
from contextlib import contextmanager
from importlib.util import find_spec

import torch
import torch.distributed as dist
from torch.distributed import launcher, rpc
from torch.distributed.elastic.multiprocessing.errors import record

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook

LATER = "device_mesh", "fsdp", "pipelining", "tensor"


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


@today("misleads")
def row_32(rank, world_size):
    """DataParallel as a step of the road: which class does its own page recommend?"""
    text = torch.nn.DataParallel.__doc__
    return re.search(r"recommended to use :class:`.*?(\w+)`", text)[1], "DataParallel"


@today("misleads")
def row_33(rank, world_size):
    """Three components, and those that came later: how many are there?"""
    return 3 + sum(bool(find_spec(f"torch.distributed.{name}")) for name in LATER), 3


@today("stops")
def row_34(rank, world_size):
    """The backend of RPC."""
    SEEN["backends"] = [backend.name for backend in rpc.BackendType]
    return rpc.BackendType.PROCESS_GROUP.name, "PROCESS_GROUP"


@today("misleads")
def row_35(rank, world_size):
    """Were we launched by torchelastic, and which package is its launcher in?"""
    top = launcher.__name__.split(".")[0]
    return [all(told("TORCHELASTIC_RUN_ID" in os.environ)), top], [True, "torchelastic"]


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
