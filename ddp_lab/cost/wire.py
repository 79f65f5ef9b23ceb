"""How long an all_reduce takes between each two ranks, inside a node and across.

    torchrun --standalone --nproc-per-node 4 ddp_lab/cost/wire.py

On several nodes, with `--nnodes` as well, some pairs are far apart:

    [rank 0] with rank 1 (node 0): ... ms, in 64 pieces ... ms
    [rank 0] with rank 2 (node 1): ... ms, in 64 pieces ... ms

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
import statistics
import time
from contextlib import contextmanager
from itertools import combinations

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

NUMBERS = 2**18  # in float32, so a tensor of 1 MB
PIECES = 64
REPEATS = 3  # that count, after one that does not


def time_pair(pieces, group, device):
    """The milliseconds of a sum by two ranks: the median of some repeats."""
    milliseconds = []
    for _ in range(REPEATS + 1):
        buf = torch.full((NUMBERS,), dist.get_rank(group) + 1.0, device=device)
        dist.barrier(group)  # both begin together
        start = time.perf_counter()
        for piece in buf.chunk(pieces):
            dist.all_reduce(piece, group=group)  # both ranks now hold 1 + 2 in it
        buf[-1].item()  # on a GPU, only this waits for it
        milliseconds.append(1000 * (time.perf_counter() - start))
        if not (buf == 3).all():
            raise AssertionError(f"1 + 2 is {buf.unique().tolist()}")
    return statistics.median(milliseconds[1:])  # the first one connects the two


def time_pairs(rank, world_size, device):
    """By the other's rank, the milliseconds in one piece and in many; None for own."""
    row = [[None, None] for _ in range(world_size)]
    for pair in combinations(range(world_size), 2):
        group = dist.new_group(pair)  # called by all ranks, also by those outside
        if rank in pair:
            times = [time_pair(pieces, group, device) for pieces in (1, PIECES)]
            row[sum(pair) - rank] = times
        dist.barrier()  # one pair at a time, or they would share the wire
    return row


def main(rank, world_size, device):
    nodes = [None] * world_size
    dist.all_gather_object(nodes, int(os.environ["GROUP_RANK"]))  # all know all
    row = time_pairs(rank, world_size, device)
    for other, (whole, cut) in enumerate(row):
        if other != rank:
            pair = f"with rank {other} (node {nodes[other]})"
            times = f"{whole:.1f} ms, in {PIECES} pieces {cut:.1f} ms"
            print(f"[rank {rank}] {pair}: {times}", flush=True)
    whole, cut = zip(*row, strict=True)
    return {"node": nodes[rank], "milliseconds": whole, "in_pieces": cut}


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
