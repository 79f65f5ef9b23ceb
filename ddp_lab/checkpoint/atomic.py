"""A save that dies half-way: in place it takes the old checkpoint with it.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/atomic.py

Rank 0 saves steps 1 and 2 and dies in the middle of step 3. Then all ranks read:

    [rank 0] save_in_place: a reader of step 1 got step ...
    [rank 1] save_in_place: save_in_place.pt is cut short: resume from an older one

Written by notebooks/05_checkpointing.ipynb.
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
    os.replace(file.name, path)  # another file gets the name; the old one is untouched


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


def save_and_die(save, path):
    """Save steps 1, 2 and half of 3; return the step that a reader of 1 ends up at."""
    save(path, step=1)
    with open(path, "rb") as reader:  # a copy job, say, that is not through yet
        save(path, step=2)
        reads = torch.load(reader, weights_only=True)["step"]
    try:
        save(path, step=3, dies=True)
    except PowerCut:
        print(f"[rank 0] {save.__name__}: died half-way through step 3", flush=True)
    return reads


def look_after_power_cut(save, path, rank):
    """Let rank 0 save and die; return what its reader read, and what all read then."""
    reads = None
    if rank == 0:
        try:
            reads = save_and_die(save, path)
        except OSError as error:  # a full disk, say; half a file helps nobody
            path.with_suffix(".tmp").unlink(missing_ok=True)
            raise OSError(f"cannot save in {path.parent}: {error.strerror}") from None
    dist.barrier()  # nobody looks before rank 0 is dead
    try:
        return reads, f"step {load(path)['step']}"
    except RuntimeError as error:
        return reads, str(error)


def check(folder, rank):
    """Try both ways to save; return what this rank found after each."""
    cut = "save_in_place.pt is cut short: resume from an older one"
    expected = {save_in_place: (2, cut), save_atomically: (1, "step 2")}
    facts = {}
    for save, truth in expected.items():
        name = save.__name__
        reads, found = look_after_power_cut(save, folder / f"{name}.pt", rank)
        if rank == 0:
            print(f"[rank 0] {name}: a reader of step 1 got step {reads}", flush=True)
        print(f"[rank {rank}] {name}: {found}", flush=True)
        facts[name] = {"reads": reads, "found": found}
        assert found == truth[1] and reads in (None, truth[0]), f"expected {truth}"
    return facts


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    args = parser.parse_args()
    with process_group() as (rank, _, _), TemporaryDirectory() as own:
        folder = [args.dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        os.makedirs(folder[0], exist_ok=True)
        facts = check(Path(folder[0]), rank)
        dist.barrier()  # or rank 0 would clear away what others have yet to look at
        print(json.dumps(facts), flush=True)


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
