"""A checkpoint is replaced while it is read: in place, and by renaming.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/reader.py

Written by notebooks/06_checkpointing.ipynb.
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


def save_in_place(path, step):
    with open(path, "wb") as file:  # the old checkpoint is gone from here on
        write(file, step)


def save_atomically(path, step):
    with open(path.with_suffix(".tmp"), "wb") as file:
        write(file, step)
    os.replace(file.name, path)  # another file gets the name; the old one is untouched


def write(file, step):
    torch.save({"step": step, "weights": torch.full((1000,), float(step))}, file)
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


def replace_while_read(save, path):
    """Save steps 1 and 2; return the step that a reader of step 1 gets."""
    save(path, step=1)
    with open(path, "rb") as reader:  # a copy job, say, that has not finished yet
        save(path, step=2)
        return torch.load(reader, weights_only=True)["step"]


def main(rank, world_size, device):
    reads = {}
    with shared_folder() as folder:
        for save, expected in {save_in_place: 2, save_atomically: 1}.items():
            step = replace_while_read(save, folder / f"{save.__name__}_{rank}.pt")
            print(f"[rank {rank}] {save.__name__}: read step {step}", flush=True)
            assert step == expected, f"read step {step}, expected {expected}"
            reads[save.__name__] = step
    return reads


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
