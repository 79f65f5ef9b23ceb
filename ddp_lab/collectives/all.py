"""Four collectives without a root: every rank gives and every rank gets.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/all.py

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def all_reduce(rank, row, table):
    buf = row.clone()  # (world_size,)
    # Every rank ends up with the same sums, written over its own row.
    dist.all_reduce(buf, op=dist.ReduceOp.SUM)
    return row, buf, [sum(column) for column in zip(*table, strict=True)]


def all_gather(rank, row, table):
    recv_buf = torch.full_like(row, -1)  # (world_size,)
    # Every rank ends up with every rank's first number, in rank order.
    dist.all_gather_into_tensor(recv_buf, row[:1])
    return row[:1], recv_buf, [numbers[0] for numbers in table]


def reduce_scatter(rank, row, table):
    recv_buf = torch.full_like(row[:1], -1)  # (1,)
    # Rank i ends up with sum number i and never sees the others.
    dist.reduce_scatter_tensor(recv_buf, row, op=dist.ReduceOp.SUM)
    return row, recv_buf, [sum(numbers[rank] for numbers in table)]


def all_to_all(rank, row, table):
    recv_buf = torch.full_like(row, -1)  # (world_size,)
    # Rank i ends up with column i of the table whose rows were the send buffers.
    dist.all_to_all_single(recv_buf, row)
    return row, recv_buf, [numbers[rank] for numbers in table]


def main(rank, world_size, device):
    # Host memory for gloo: which of these it does on a GPU depends on the release.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    table = [[10 * r + i for i in range(world_size)] for r in range(world_size)]
    row, facts = torch.tensor(table[rank], device=device), {}  # (world_size,)
    for collective in (all_reduce, all_gather, reduce_scatter, all_to_all):
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
