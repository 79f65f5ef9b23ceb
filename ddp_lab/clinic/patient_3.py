"""Each rank labels its chunk of the images, then every rank collects all the labels.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_3.py

Written by notebooks/08_when_it_hangs.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

IMAGES = 11


def label(images):
    """Stand for a model: image i is of class 3i modulo 10."""
    return 3 * images % 10


def collect(mine, world_size):
    """Return the labels of all ranks, in the order of the images."""
    parts = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(parts, mine)  # every rank now holds the labels of all ranks
    return torch.cat(parts)


def main(rank, world_size, device):
    images = torch.arange(IMAGES, device=device)  # (11,): their numbers will do
    chunks = images.chunk(world_size)
    if len(chunks) != world_size:
        raise SystemExit(f"{IMAGES} images do not make {world_size} chunks")
    mine = label(chunks[rank])
    print(f"[rank {rank}] labeled its images: {mine.tolist()}", flush=True)
    labels = collect(mine, world_size)
    count, last = len(labels), labels[-1]
    print(f"[rank {rank}] has {count} labels, the last is {last}", flush=True)
    expected = label(images)
    if not torch.equal(labels, expected):
        raise AssertionError(f"collected {labels.tolist()}, not {expected.tolist()}")
    return {"labels": labels.tolist()}


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
