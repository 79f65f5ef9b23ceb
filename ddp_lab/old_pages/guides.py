"""What guides of about 2023 and of 2025 promise, and what today's PyTorch brings.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/guides.py

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import warnings
from argparse import Namespace
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from io import BytesIO

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook

GPU = torch.accelerator.is_available()


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


def load(settings, where):
    """Save and load a checkpoint; return where its weights are, and should be."""
    file = BytesIO()
    torch.save({"weight": torch.ones(1), "settings": settings}, file)
    file.seek(0)
    weight = torch.load(file, map_location=where)["weight"]
    return str(weight.device), *where.values()


@today("stops")
def row_25(rank, world_size):
    """A Namespace in a checkpoint, and a map_location for a GPU that is not in it."""
    wheres = {"cpu": "meta"}, {"cuda:0": "cuda:9"}
    SEEN["dict"] = [judge(load, {"lr": 0.1}, where)[0] for where in wheres]
    return load(Namespace(lr=0.1), {"cpu": "meta"})


def train(*parts):
    """Train for parts of so many epochs, each with its own optimizer."""
    weight = torch.ones(1, requires_grad=True)
    for epochs in parts:
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        for _ in range(epochs):
            optimizer.zero_grad()
            weight.square().backward()
            optimizer.step()
    return round(weight.item(), 4)


@today("misleads")
def row_26(rank, world_size):
    """A new optimizer for the third epoch: is the weight as without a restart?"""
    return train(2, 1), train(3)


@today("holds" if GPU else "stops")
def row_27(rank, world_size):
    """The backend of the current accelerator: does it fit this machine?"""
    name = dist.get_default_backend_for_device(torch.accelerator.current_accelerator())
    return dist.get_backend(dist.new_group(backend=name)), name


@today("misleads")
def row_28(rank, world_size):
    """30 seconds, for a slow network: which group waits longer?"""
    for name, timeout in {"default": None, "page": timedelta(seconds=30)}.items():
        gloo = dist.new_group(timeout=timeout)._get_backend(torch.device("cpu"))
        SEEN[name] = gloo.options._timeout.total_seconds()
    return max(("default", "page"), key=SEEN.get), "page"


def ends(call, seconds):
    """How a rank's call ends, in a group with this timeout."""
    group = dist.new_group(timeout=timedelta(seconds=seconds))
    try:
        call(torch.ones(1), group=group)
    except RuntimeError:
        return "hangs"
    return "returns"


@today("misleads")
def row_29(rank, world_size):
    """Is the network to blame for a hang? Then matching calls would hang as well."""
    broadcast = partial(dist.broadcast, src=0)
    if ends(dist.all_reduce if rank == 0 else broadcast, seconds=1) != "hangs":
        raise AssertionError("expected different calls to hang")
    return ends(dist.all_reduce, seconds=30), "hangs"


@today("holds" if GPU else "stops")
def row_30(rank, world_size):
    """rank % device_count(): is it the device of the local rank?"""
    count = torch.accelerator.device_count()
    return rank % count, int(os.environ["LOCAL_RANK"]) % count


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
