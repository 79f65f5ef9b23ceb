"""Nine collectives, and one rank that calls each of them late: who waits for it?

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/late.py

First the last rank is late in each of them, then rank 0, which is the root:

    [rank 2] rank 3 was late: we went on without it in ...

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
# No rank can finish these without something from every rank.
FROM_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


def make_calls(rank, world_size):
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


def must_wait(name, late, rank):
    """Whether this rank's result needs something that only the late one can give."""
    source = rank if name in ("gather", "reduce") else late
    return name in FROM_ALL or source == ROOT


def went_on(name, call, late, store):
    """Call, and say whether that ended without the late rank, and its seconds."""
    key = f"{name}, rank {late} late"
    dist.barrier()  # all begin together
    if dist.get_rank() == late:
        time.sleep(LATE)
        store.set(key, "here I come")  # before the call, so that no rank overtakes it
    start = time.perf_counter()
    call()
    return not store.check([key]), time.perf_counter() - start


def main(rank, world_size, device):
    # The ranks met at this store: one can leave a note there for the others.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    facts = {}
    for scene, late in (("last", world_size - 1), ("root", ROOT)):
        calls = make_calls(rank, world_size)
        ends = {n: went_on(n, call, late, store) for n, call in calls.items()}
        early = [name for name, (without, _) in ends.items() if without]
        told = ", ".join(early) or "none"
        if rank != late:
            print(
                f"[rank {rank}] rank {late} was late: we went on without it in {told}",
                flush=True,
            )
        if wrong := [name for name in early if must_wait(name, late, rank)]:
            raise AssertionError(f"went on without rank {late} in {wrong}")
        facts |= {scene: early, f"barrier, {scene} late": ends["barrier"][1]}
    return facts | {"nine": list(calls)}


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
