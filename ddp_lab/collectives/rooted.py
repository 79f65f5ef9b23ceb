"""Four collectives in which one rank, the root, is the source or the destination.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/rooted.py

Rank r owns the row 10r, 10r + 1, ...: the tens name its owner, the ones its place.

    [rank 2] scatter: [-1] -> ...
    [rank 2] gather: [20] -> None

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

ROOT = 0


def broadcast(rank, row, table):
    buf = row.clone()  # (world_size,)
    # Every rank ends up with the root's row; what the others held is overwritten.
    dist.broadcast(buf, src=ROOT)
    return row, buf, table[ROOT]


def scatter(rank, row, table):
    before = row if rank == ROOT else torch.full_like(row[:1], -1)
    recv_buf = torch.full_like(row[:1], -1)
    # Rank i ends up with piece i. Only the root may bring a list.
    dist.scatter(recv_buf, list(row.split(1)) if rank == ROOT else None, src=ROOT)
    return before, recv_buf, [table[ROOT][rank]]


def gather(rank, row, table):
    pieces = [torch.full_like(row[:1], -1) for _ in table] if rank == ROOT else None
    # The root ends up with all pieces in rank order, the others with nothing new.
    dist.gather(row[:1], pieces, dst=ROOT)
    if rank != ROOT:
        return row[:1], None, None
    return row[:1], torch.cat(pieces), [numbers[0] for numbers in table]


def reduce(rank, row, table):
    buf = row.clone()  # (world_size,)
    # The root ends up with the sums; on the others the buffer may hold anything.
    dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.SUM)
    if rank != ROOT:
        return row, None, None
    return row, buf, [sum(column) for column in zip(*table, strict=True)]


def main(rank, world_size, device):
    # Host memory for gloo: which of these it does on a GPU depends on the release.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    table = [[10 * r + i for i in range(world_size)] for r in range(world_size)]
    row, facts = torch.tensor(table[rank], device=device), {}  # (world_size,)
    for collective in (broadcast, scatter, gather, reduce):
        before, after, expected = collective(rank, row, table)
        name, before = collective.__name__, before.tolist()
        after = None if after is None else after.tolist()
        print(f"[rank {rank}] {name}: {before} -> {after}", flush=True)
        if after != expected:
            raise AssertionError(f"{name} gave {after}, expected {expected}")
        facts[name] = [before, after]
    return facts


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
