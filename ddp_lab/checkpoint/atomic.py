"""A save that dies half-way: in place it takes the old checkpoint with it.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/atomic.py

Written by notebooks/06_checkpointing.ipynb.
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


def save_in_place(path, step):
    with open(path, "wb") as file:  # the old checkpoint is gone from here on
        write(file, step)


def save_atomically(path, step):
    with open(path.with_suffix(".tmp"), "wb") as file:
        write(file, step)
    os.replace(file.name, path)  # another file gets the name; the old one is untouched


class PowerCut(Exception):
    """Stands for the moment when the machine goes dark."""


def write(file, step):
    torch.save({"step": step, "weights": torch.full((1000,), float(step))}, file)
    if step == 3:
        file.truncate(file.tell() // 2)
        raise PowerCut
    # The system keeps new bytes in memory for a while; the name must not be faster.
    os.fsync(file.fileno())


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


def load(path):
    """Return a checkpoint, or say in one sentence what is wrong with it."""
    if not zipfile.is_zipfile(path):
        raise RuntimeError(f"{path.name} is cut short: resume from an older one")
    return torch.load(path, map_location="cpu", weights_only=True)


def main(rank, world_size, device):
    cut = "save_in_place.pt is cut short: resume from an older one"
    found = {}
    with shared_folder() as folder:
        for save, expected in {save_in_place: cut, save_atomically: "step 2"}.items():
            name = save.__name__
            path = folder / f"{name}.pt"
            try:
                for step in 1, 2, 3:
                    if rank == 0:
                        save(path, step)
            except PowerCut:
                print(f"[rank 0] {name}: died half-way through step 3", flush=True)
            dist.barrier()  # no rank looks before rank 0 is dead
            try:
                found[name] = f"step {load(path)['step']}"
            except RuntimeError as error:
                found[name] = str(error)
            print(f"[rank {rank}] {name}: {found[name]}", flush=True)
            assert found[name] == expected, f"expected {expected}"
    return found


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
