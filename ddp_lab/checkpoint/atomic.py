"""A save that dies half-way: in place it takes the old checkpoint with it.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/atomic.py

Rank 0 saves step 1 and dies in the middle of step 2. Then all ranks read the file:

    [rank 1] save_in_place: save_in_place.pt is cut short: resume from an older one
    [rank 1] save_atomically: step 1

Written by notebooks/04_checkpointing.ipynb.
"""

import argparse
import gc
import json
import os
import zipfile
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def save_in_place(path, step, dies=False):
    with open(path, "wb") as file:  # the old checkpoint is gone from here on
        write(file, step, dies)


def save_atomically(path, step, dies=False):
    with open(path.with_suffix(".tmp"), "wb") as file:
        write(file, step, dies)
    os.replace(file.name, path)  # readers find the old file or the new, nothing between


def write(file, step, dies):
    """Write the checkpoint of `step`, or half of it."""
    torch.save({"step": step, "weights": torch.full((1000,), float(step))}, file)
    if dies:
        file.truncate(file.tell() // 2)
        raise PowerCut
    # The system keeps new bytes in memory for a while; the name must not be faster.
    os.fsync(file.fileno())


class PowerCut(Exception):
    """Stands for the moment when the machine goes dark."""


def load(path):
    """Return a checkpoint, or say in one sentence what is wrong with it."""
    # torch.save writes a zip archive, and the directory of a zip comes at its very end.
    if not zipfile.is_zipfile(path):
        raise RuntimeError(f"{path.name} is cut short: resume from an older one")
    return torch.load(path, map_location="cpu", weights_only=True)


def look_after_power_cut(save, path, rank):
    """Let rank 0 save step 1 and half of step 2; return what this rank then reads."""
    if rank == 0:
        try:
            save(path, step=1)
            save(path, step=2, dies=True)
        except PowerCut:
            print(f"[rank {rank}] died half-way through step 2", flush=True)
        except OSError as error:  # a full disk, say; half a file helps nobody
            path.with_suffix(".tmp").unlink(missing_ok=True)
            raise OSError(f"cannot save in {path.parent}: {error.strerror}") from None
    dist.barrier()  # nobody looks before rank 0 is dead
    try:
        return f"step {load(path)['step']}"
    except RuntimeError as error:
        return str(error)


def check(folder, rank):
    """Try both ways to save; return what this rank found after each."""
    seen = {}
    for save in save_in_place, save_atomically:
        name = save.__name__
        seen[name] = look_after_power_cut(save, folder / f"{name}.pt", rank)
        print(f"[rank {rank}] {name}: {seen[name]}", flush=True)
    cut = "save_in_place.pt is cut short: resume from an older one"
    expected = {"save_in_place": cut, "save_atomically": "step 1"}
    assert seen == expected, f"{seen}, expected {expected}"
    return seen


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    args = parser.parse_args()
    with process_group() as (rank, _, _), TemporaryDirectory() as own:
        folder = [args.dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        os.makedirs(folder[0], exist_ok=True)
        seen = check(Path(folder[0]), rank)
        dist.barrier()  # or rank 0 would clear away what others have yet to look at
        print(json.dumps({"seen": seen}), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


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


if __name__ == "__main__":
    main()
