"""Who saves? As if by local rank 0 of every node: all ranks write one file at once.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/writers.py

Each rank plays a node of its own, and says whether its save went well:

    [rank 0] saved: ...

Written by notebooks/05_checkpointing.ipynb.
"""

import argparse
import gc
import json
import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def save_from_every_node(path):
    """Save as if each rank were local rank 0 of its own node; True if it worked."""
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:  # all write this one file on the shared disk
        torch.save({"step": 1}, file)
    dist.barrier()  # the worst moment: all have written, nobody has renamed yet
    try:
        os.replace(temporary, path)
    except FileNotFoundError:  # another rank has renamed it already
        return False
    return True


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    args = parser.parse_args()
    with process_group() as (rank, world_size, _), TemporaryDirectory() as own:
        folder = [args.dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        os.makedirs(folder[0], exist_ok=True)
        worked = save_from_every_node(Path(folder[0], "nodes.pt"))
        saved = [None] * world_size
        dist.all_gather_object(saved, worked)  # all now know who got through
        print(f"[rank {rank}] saved: {worked}", flush=True)
        print(json.dumps({"saved": worked}), flush=True)
        assert sum(saved) == 1, f"{sum(saved)} ranks saved, expected 1"


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
