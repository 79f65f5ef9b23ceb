"""Nine collectives, and one rank that calls each of them late: who is held up by it?

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/late.py

First the last rank is late in each of them, then rank 0, which is the root:

    [rank 2] rank 3 was late: we went on without it in ...
    [rank 2] rank 0 was late: we went on without it in ...

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

ROOT, LATE = 0, 0.3  # a rank; seconds
# Each rank's result is made of something from every rank.
FROM_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


def make_calls(rank, world_size):
    """The nine calls by name; what travels is all zeros, we ask only who waits."""
    # Host memory everywhere, so over gloo: on a GPU a call only joins a queue.
    one, many = torch.zeros(1), torch.zeros(world_size)  # (1,), (world_size,)
    pieces = [torch.zeros(1) for _ in range(world_size)] if rank == ROOT else None
    return {
        "broadcast": lambda: dist.broadcast(many, src=ROOT),
        "scatter": lambda: dist.scatter(one, pieces, src=ROOT),
        "gather": lambda: dist.gather(one, pieces, dst=ROOT),
        "reduce": lambda: dist.reduce(many, dst=ROOT),
        "all_reduce": lambda: dist.all_reduce(many),
        "all_gather": lambda: dist.all_gather_into_tensor(many, one),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(one, many),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(many), many),
        "barrier": lambda: dist.barrier(),
    }


def went_on(name, call, late, store):
    """Make the call, `late` after all others; return whether we went on without it."""
    key = f"{name}, rank {late} late"
    dist.barrier()  # all begin together
    if dist.get_rank() == late:
        time.sleep(LATE)
        store.set(key, "here I come")  # before the call, so nobody overtakes it
    call()
    return not store.check([key])


def must_wait(name, late, rank):
    """Whether this rank's result needs something that only the late one can give."""
    if name in FROM_ALL:
        return True
    if name in ("broadcast", "scatter"):
        return late == ROOT  # everything comes from the root
    return rank == ROOT  # gather and reduce: everything goes there


@record
def main():
    with process_group() as (rank, world_size, _):
        # The ranks met at this store: one can leave a note there for the others.
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store, facts = dist.TCPStore(*address), {}
        for scene, late in (("last", world_size - 1), ("root", ROOT)):
            calls = make_calls(rank, world_size)
            early = [n for n, call in calls.items() if went_on(n, call, late, store)]
            if rank != late:
                print(
                    f"[rank {rank}] rank {late} was late: we went on without it in"
                    f" {', '.join(early) or 'none'}",
                    flush=True,
                )
            facts[scene] = early
            if wrong := [name for name in early if must_wait(name, late, rank)]:
                raise AssertionError(f"went on without rank {late} in {wrong}")
        print(json.dumps(facts | {"nine": list(calls)}), flush=True)


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
