"""An IterableDataset, split by rank and worker: every sample comes once.

    torchrun --standalone --nproc-per-node 3 ddp_lab/profiling/stream.py

    [rank 0] 14 samples

Written by notebooks/10_profile_a_step.ipynb.
"""

import gc
import json
import os
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIZE, BATCH, WORKERS = 40, 4, 2


class Stream(IterableDataset):
    """The samples 0, 1, 2, ... of which each reader takes its own."""

    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        first = self.rank * workers + number
        yield from range(first, SIZE, self.world_size * workers)


def main(rank, world_size, device):
    loader = DataLoader(Stream(rank, world_size), BATCH, num_workers=WORKERS)
    mine = torch.cat(list(loader)).tolist()
    print(f"[rank {rank}] {len(mine)} samples", flush=True)
    every = [None] * world_size
    dist.all_gather_object(every, mine)  # every rank now knows what all have read
    times = Counter(sample for samples in every for sample in samples)
    for sample in range(SIZE):
        if times[sample] != 1:
            raise AssertionError(f"sample {sample} came {times[sample]} times")
    return {"samples": mine}


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
