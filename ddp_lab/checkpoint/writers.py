"""Many ranks save to one path, as local rank 0 of every node would: one gets through.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/writers.py

Written by notebooks/A3_sharded_checkpoints.ipynb.
"""

import argparse
import gc
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@contextmanager
def shared_folder():
    """Yield the folder of --dir, or a temporary one: the same on all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    with TemporaryDirectory() as own:
        folder = [parser.parse_args().dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        os.makedirs(folder[0], exist_ok=True)
        yield Path(folder[0])
        dist.barrier()  # or rank 0 could delete what others have yet to read


def save_from_every_node(path):
    """Save as if each rank were local rank 0 of its own node; True if it worked."""
    with open(path.with_suffix(".tmp"), "wb") as file:  # one file for all of them
        torch.save({"step": 1}, file)
    dist.barrier()  # the worst moment: all have written, none has renamed yet
    with suppress(FileNotFoundError):  # if another rank has renamed it already
        os.replace(file.name, path)
        return True
    return False


def main(rank, world_size, device):
    with shared_folder() as folder:
        worked = save_from_every_node(folder / "nodes.pt")
    saved = [None] * world_size
    dist.all_gather_object(saved, worked)  # all now know who got through
    print(f"[rank {rank}] saved: {worked}", flush=True)
    assert sum(saved) == 1, f"{sum(saved)} ranks saved, expected 1"
    return {"saved": worked}


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
