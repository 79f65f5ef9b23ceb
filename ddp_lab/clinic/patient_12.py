"""A rod cools: each rank holds a piece of it, and neighbors swap their outer cells.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_12.py

Written by notebooks/08_when_it_hangs.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

CELLS, STEPS, HOT = 12, 3, 96.0


def cool(below, piece, above):
    """Mix every cell with its two neighbors."""
    padded = torch.cat([below, piece, above])  # (cells + 2,)
    return (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4  # (cells,)


def swap(send_buf, neighbor):
    """Give the neighbor our outer cell, and return the neighbor's."""
    recv_buf = torch.empty_like(send_buf)  # (1,)
    dist.send(send_buf, dst=neighbor)
    dist.recv(recv_buf, src=neighbor)
    return recv_buf


def main(rank, world_size, device):
    if CELLS % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {CELLS} cells")
    # gloo's send and recv work only on host memory, even where there is a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    rod = torch.zeros(CELLS, device=device)  # (12,)
    rod[: CELLS // 2] = HOT
    piece = rod.chunk(world_size)[rank]
    cells = piece.int().tolist()
    print(f"[rank {rank}] starts with {len(cells)} cells: {cells}", flush=True)
    for _ in range(STEPS):
        # The two ends of the rod have no neighbor, and keep their warmth.
        below = swap(piece[:1], rank - 1) if rank > 0 else piece[:1]
        above = swap(piece[-1:], rank + 1) if rank < world_size - 1 else piece[-1:]
        piece = cool(below, piece, above)
        rod = cool(rod[:1], rod, rod[-1:])  # the truth: the rod in one piece
    print(f"[rank {rank}] ends with {piece.int().tolist()}", flush=True)
    expected = rod.chunk(world_size)[rank]
    if not torch.equal(piece, expected):
        raise AssertionError(f"{piece.tolist()}, expected {expected.tolist()}")
    return {"piece": piece.tolist()}


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
