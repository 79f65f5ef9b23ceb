"""The calls of an old list, and those that came after it, each with its truth.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/calls.py

Rank r owns the row 10r, 10r + 1, ... Then three ways to share a list of tensors:

    [rank 2] 6 old calls and 7 newer ones: all right
    [rank 2] broadcast left ..., scatter left ...

Written by notebooks/15_what_old_pages_say.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def old_calls(row, pieces):
    """The six calls of the old list: what each leaves on this rank."""
    root, world_size = dist.get_rank() == 0, dist.get_world_size()
    found = {}
    for name in ("broadcast", "reduce", "all_reduce"):
        found[name] = row.clone()  # written over by the call
    dist.broadcast(found["broadcast"], src=0)  # every rank now holds rank 0's row
    dist.reduce(found["reduce"], dst=0)  # rank 0 now holds the sums, place by place
    dist.all_reduce(found["all_reduce"])  # every rank now holds the sums
    found["scatter"] = torch.empty_like(row[:1])
    # Rank i now holds place i of rank 0's row, and nothing of its own.
    dist.scatter(found["scatter"], list(row.split(1)) if root else None, src=0)
    gathered = [torch.empty_like(row) for _ in range(world_size)]
    dist.gather(row, gathered if root else None, dst=0)  # rank 0 holds all rows
    found["gather"] = torch.stack(gathered) if root else None
    dist.all_gather(pieces, row)  # every rank now holds all rows
    found["all_gather"] = torch.stack(pieces)
    if not root:
        del found["reduce"]  # may be anything there
    return found


def newer_calls(row):
    """Some of those that the old list does not know."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    found = {"all_gather_into_tensor": row.new_empty(world_size * len(row))}
    dist.all_gather_into_tensor(found["all_gather_into_tensor"], row)  # all rows, flat
    found["reduce_scatter_tensor"] = row[:1].clone()
    dist.reduce_scatter_tensor(found["reduce_scatter_tensor"], row)  # sum number `rank`
    for name in ("all_to_all_single", "all_to_all"):
        found[name] = torch.empty_like(row)
    dist.all_to_all_single(found["all_to_all_single"], row)  # place `rank` of each row
    dist.all_to_all(list(found["all_to_all"].split(1)), list(row.split(1)))  # the same
    objects, message = [None] * world_size, [f"of {rank}"]
    dist.all_gather_object(objects, rank)  # any object that can be pickled, of all
    dist.broadcast_object_list(message, src=0)  # rank 0's objects on every rank
    found["all_gather_object"], found["broadcast_object_list"] = objects, message
    if dist.get_backend() == "gloo":  # the one barrier that knows who is missing
        dist.monitored_barrier(timeout=timedelta(seconds=30))
    else:
        dist.barrier()  # every rank has now come
    return found


def truths(table, rank):
    """What all these calls should leave on this rank, by arithmetic."""
    sums, column, every = table.sum(0), table[:, rank], list(range(len(table)))
    old = {
        "broadcast": table[0],
        "all_reduce": sums,
        "scatter": table[0, rank : rank + 1],
    }
    old |= {"gather": None if rank else table, "all_gather": table}
    new = {"all_gather_into_tensor": table.flatten(), "all_to_all": column}
    new |= {"reduce_scatter_tensor": sums[rank : rank + 1], "all_to_all_single": column}
    new |= {"all_gather_object": every, "broadcast_object_list": ["of 0"]}
    return old | new | ({} if rank else {"reduce": sums})


def plain(result):
    """Return `result` as what JSON can say and == can compare."""
    return result.tolist() if isinstance(result, torch.Tensor) else result


@record
def main():
    with process_group() as (rank, world_size, device):
        # Host memory for gloo: which of these it does on a GPU depends on the release.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        table = torch.arange(world_size, device=device)
        table = 10 * table.view(-1, 1) + table  # (world_size, world_size)
        row = table[rank].clone()
        old = old_calls(row, [torch.empty_like(row) for _ in range(world_size)])
        new = newer_calls(row)
        found = {name: plain(result) for name, result in (old | new).items()}
        for name, expected in truths(table, rank).items():
            if found[name] != plain(expected):
                raise AssertionError(f"{name}: {found[name]}, expected {expected}")
        # The old note: glue a list, all_reduce it, cut it. That is no list of all.
        pieces = [plain(piece) for piece in torch.chunk(old["all_reduce"], world_size)]
        newer = len(new) + 1  # and the barrier
        print(
            f"[rank {rank}] 6 old calls and {newer} newer ones: all right", flush=True
        )
        got = f"broadcast left {found['broadcast']}, scatter left {found['scatter']}"
        print(f"[rank {rank}] {got}", flush=True)
        backend = "gloo" if dist.get_backend() == "gloo" else "nccl"
        facts = {"found": found, "newer": newer, "pieces": pieces}
        facts |= {"device": str(device), "backend": backend}
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
