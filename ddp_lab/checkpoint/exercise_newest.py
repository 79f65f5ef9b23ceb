"""Exercise: every rank wrote its own part of each checkpoint, and then came a storm.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/exercise_newest.py

Find the newest step from which all ranks can go on. Fill in newest_whole():

    [rank 0] not yet

Written by notebooks/06_sharded_checkpoints.ipynb.
"""

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

STEPS = 3, 6, 9, 12, 15
FLOATS = 1000  # in a rank's part


def newest_whole(parts):
    """Return the newest step whose part is sound on *every* rank; the same on all.

    Args:
        parts: {step: path} of this rank's own files. No rank can see another's. A
            file may be cut short, or have zeros where its numbers were.

    Returns:
        The step, as an int; `zipfile` is imported. Target: 3, although each rank has
        sound files of later steps.
    """
    return None  # your code here


def write_parts(folder, rank, world_size):
    """Write this rank's files, then damage some; return {step: path}."""
    first, last = rank == 0, rank == world_size - 1
    cut, zeroed = {12: last, 15: True}, {9: first, 6: last}
    parts = {}
    for step in STEPS:
        path = parts[step] = Path(folder, f"step_{step}.pt")
        torch.save({"step": step, "part": torch.full((FLOATS,), 1.5)}, path)
        whole = path.read_bytes()
        if cut.get(step):
            path.write_bytes(whole[: len(whole) // 2])
        if zeroed.get(step):
            numbers = torch.full((FLOATS,), 1.5).numpy().tobytes()
            path.write_bytes(whole.replace(numbers, bytes(len(numbers))))
            assert zipfile.is_zipfile(path), "a check of the form does not see it"
    return parts


def main(rank, world_size, device):
    # A folder for each rank, as if each had its own disk.
    with TemporaryDirectory() as folder:
        answer = newest_whole(write_parts(folder, rank, world_size))
        if answer is None:  # on all ranks alike, so nobody is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return
        print(f"[rank {rank}] goes on from step {answer}", flush=True)
        if answer != STEPS[0]:
            raise AssertionError(f"step {answer}, expected {STEPS[0]}")
        return {"solved": True, "step": answer}


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
