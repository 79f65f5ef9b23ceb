"""Five collectives without a root: every rank gives and every rank gets.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/all.py

Rank r owns the row 10r, 10r + 1, ...: the tens name the owner, the ones the place.

    [rank 2] all_to_all: [20, 21, 22, 23] -> ...
    [rank 2] barrier: 4 of 4 ranks had come when it opened

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def all_reduce(rank, table, device):
    """The rows are added up, place by place, for everybody."""
    buf = torch.tensor(table[rank], device=device)  # (world_size,)
    before = buf.tolist()
    # Every rank ends up with the same sums, written over its own row.
    dist.all_reduce(buf, op=dist.ReduceOp.SUM)
    return before, buf.tolist(), [sum(column) for column in zip(*table, strict=True)]


def all_gather(rank, table, device):
    """One number of each rank is collected on every rank."""
    send_buf = torch.tensor(table[rank][:1], device=device)
    recv_buf = torch.full((len(table),), -1, device=device)  # (world_size,)
    # Every rank ends up with all numbers, in rank order.
    dist.all_gather_into_tensor(recv_buf, send_buf)
    return send_buf.tolist(), recv_buf.tolist(), [row[0] for row in table]


def reduce_scatter(rank, table, device):
    """The rows are added up, and each rank keeps one place of the sum."""
    send_buf = torch.tensor(table[rank], device=device)
    recv_buf = torch.full((1,), -1, device=device)  # (1,)
    # Rank i ends up with sum number i and never sees the others.
    dist.reduce_scatter_tensor(recv_buf, send_buf, op=dist.ReduceOp.SUM)
    return send_buf.tolist(), recv_buf.tolist(), [sum(row[rank] for row in table)]


def all_to_all(rank, table, device):
    """Place i of every row goes to rank i: the table is transposed."""
    send_buf = torch.tensor(table[rank], device=device)  # (world_size,)
    recv_buf = torch.full_like(send_buf, -1)
    # Rank i ends up with column i of the table whose rows were the send buffers.
    dist.all_to_all_single(recv_buf, send_buf)
    return send_buf.tolist(), recv_buf.tolist(), [row[rank] for row in table]


def barrier(rank, world_size):
    """Nothing of ours travels; nobody goes on before the last has come."""
    # Only to look on: the store at which the ranks met counts those who have come.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    time.sleep(0.2 * rank)  # the higher the rank, the later it comes
    store.add("come", 1)
    come_at = time.time()
    # Every rank ends up knowing that all the others have got this far.
    dist.barrier()
    went_at, come = time.time(), store.add("come", 0)
    print(
        f"[rank {rank}] barrier: {come} of {world_size} ranks had come when it opened",
        flush=True,
    )
    if come != world_size:
        raise AssertionError(f"{come} ranks had come, expected {world_size}")
    return come_at, went_at


@record
def main():
    with process_group() as (rank, world_size, device):
        # Host memory for gloo: which of these it does on a GPU depends on the release.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        table = [[10 * r + i for i in range(world_size)] for r in range(world_size)]
        facts = {}
        for collective in (all_reduce, all_gather, reduce_scatter, all_to_all):
            before, after, expected = collective(rank, table, device)
            name = collective.__name__
            print(f"[rank {rank}] {name}: {before} -> {after}", flush=True)
            if after != expected:
                raise AssertionError(f"{name} gave {after}, expected {expected}")
            facts[name] = [before, after]
        facts["barrier"] = barrier(rank, world_size)
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
