"""Four collectives in which one rank, the root, is the source or the destination.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/rooted.py

Rank r owns the row 10r, 10r + 1, ...: the tens name the owner, the ones the place.

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


def broadcast(rank, table, device):
    """The root's row goes to everybody."""
    buf = torch.tensor(table[rank], device=device)  # (world_size,)
    before = buf.tolist()
    # Every rank ends up with the root's row; what the others held is overwritten.
    dist.broadcast(buf, src=ROOT)
    return before, buf.tolist(), table[ROOT]


def scatter(rank, table, device):
    """The root's row is dealt out, one piece to each rank."""
    recv_buf = torch.full((1,), -1, device=device)  # (1,)
    before = table[ROOT] if rank == ROOT else recv_buf.tolist()
    row = torch.tensor(table[ROOT], device=device)  # (world_size,)
    # Rank i ends up with piece i. Only the root may bring a list.
    dist.scatter(recv_buf, list(row.split(1)) if rank == ROOT else None, src=ROOT)
    return before, recv_buf.tolist(), [table[ROOT][rank]]


def gather(rank, table, device):
    """One number of each rank is collected on the root."""
    send_buf = torch.tensor(table[rank][:1], device=device)  # (1,)
    pieces = [torch.full_like(send_buf, -1) for _ in table] if rank == ROOT else None
    # The root ends up with all pieces in rank order, the others with nothing new.
    dist.gather(send_buf, pieces, dst=ROOT)
    after = torch.cat(pieces).tolist() if rank == ROOT else None
    return send_buf.tolist(), after, [row[0] for row in table] if rank == ROOT else None


def reduce(rank, table, device):
    """The rows are added up, place by place, on the root."""
    buf = torch.tensor(table[rank], device=device)  # (world_size,)
    before = buf.tolist()
    # The root ends up with the sums; on the others the buffer may hold anything.
    dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.SUM)
    sums = [sum(column) for column in zip(*table, strict=True)]
    return before, *((buf.tolist(), sums) if rank == ROOT else (None, None))


@record
def main():
    with process_group() as (rank, world_size, device):
        # Host memory for gloo: which of these it does on a GPU depends on the release.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        table = [[10 * r + i for i in range(world_size)] for r in range(world_size)]
        facts = {}
        for collective in (broadcast, scatter, gather, reduce):
            before, after, expected = collective(rank, table, device)
            name = collective.__name__
            print(f"[rank {rank}] {name}: {before} -> {after}", flush=True)
            if after != expected:
                raise AssertionError(f"{name} gave {after}, expected {expected}")
            facts[name] = [before, after]
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
