"""One matrix under four placements: what each rank holds, and what is the whole.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/placements.py

Written by notebooks/18_meshes.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)

ROWS, COLUMNS, INNER = 5, 4, 12


def piece(whole, dim, rank, world_size):
    """The truth about Shard(dim): chunks as torch.chunk cuts them, then nothing."""
    chunks = whole.chunk(world_size, dim)
    return chunks[rank] if rank < len(chunks) else whole.narrow(dim, 0, 0)


def place(mesh, rank, world_size, device):
    """Put one matrix on the ranks in three ways; return how many rows each holds."""
    whole = torch.arange(1.0, ROWS * COLUMNS + 1, device=device).view(ROWS, COLUMNS)
    expected = {
        Replicate(): whole,
        Shard(0): piece(whole, 0, rank, world_size),
        Shard(1): piece(whole, 1, rank, world_size),
    }
    for placement, part in expected.items():
        # Rank 0's numbers are cut and sent; those of the other ranks are ignored.
        mine = distribute_tensor(whole + rank, mesh, [placement])
        if not torch.equal(mine.to_local(), part) or mine.shape != whole.shape:
            raise AssertionError(f"{placement}: holds {mine.to_local()}, not {part}")
        # Every rank holds the whole matrix afterwards.
        torch.testing.assert_close(mine.full_tensor(), whole, msg="not the whole")
        print(f"[rank {rank}] {placement}: {tuple(part.shape)} of (5, 4)", flush=True)
    return len(expected[Shard(0)])


def product(mesh, device):
    """Multiply what is cut along the inner dimension, by hand and by the library."""
    x, w = torch.ones(1, INNER, device=device), torch.ones(INNER, 1, device=device)
    expected = x @ w  # (1, 1): 12
    x = distribute_tensor(x, mesh, [Shard(1)])
    w = distribute_tensor(w, mesh, [Shard(0)])

    # Each rank multiplies its columns by its rows: one summand of the result.
    part = x.to_local() @ w.to_local()
    by_hand = DTensor.from_local(part, mesh, [Partial()])
    by_library = x @ w  # no message: only the placement says that a sum is due
    if by_library.placements != (Partial(),):
        raise AssertionError(f"the library has {by_library.placements}")
    torch.testing.assert_close(by_library.to_local(), part, msg="parts differ")
    whole = by_hand.full_tensor()  # all_reduce: every rank holds the sum
    torch.testing.assert_close(whole, expected, msg="the product is wrong")
    return part.item(), whole.item()


def main(rank, world_size, device):
    # Ranks that share a GPU join by gloo, which gathers in host memory only.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    mesh = init_device_mesh(device.type, (world_size,))
    rows = place(mesh, rank, world_size, device)
    part, whole = product(mesh, device)
    print(f"[rank {rank}] Partial: {part:g}, which adds up to {whole:g}", flush=True)
    return {"rows": rows, "part": part, "whole": whole}


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
