"""Three ring all-reduces by hand: an old wrong one, its correction, and one in chunks.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/rings.py

Each rank brings eight numbers for each rank, all of them r + 1, and counts its sends:

    [rank 0] of_2017: ..., sent ... numbers

Written by notebooks/17_what_old_pages_say.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

EACH = 8  # numbers for each rank


def pass_on(leaves, arrives):
    """Send to the right, receive from the left; return how many numbers were sent."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    swap = [
        dist.P2POp(dist.isend, leaves, (rank + 1) % world_size),
        dist.P2POp(dist.irecv, arrives, (rank - 1) % world_size),
    ]
    # `arrives` now holds what left the rank on the left.
    for work in dist.batch_isend_irecv(swap):
        work.wait()
    return leaves.numel()


def of_2017(send):
    """As an old page had it: what came in is received, and never added."""
    recv, arrives, leaves = (torch.zeros_like(send) for _ in range(3))
    total, sent = send.clone(), 0
    for step in range(dist.get_world_size() - 1):
        sent += pass_on(leaves, arrives)
        total += send if step % 2 else recv  # neither of them is what has arrived
        leaves, arrives = arrives, leaves
    if leaves.any():
        raise AssertionError("expected messages that hold nothing but zeros")
    return total, sent


def corrected(send):
    """As the page has it today: right, and each rank sends everything every time."""
    arrives, leaves = torch.zeros_like(send), send.clone()
    total, sent = send.clone(), 0
    for _ in range(dist.get_world_size() - 1):
        sent += pass_on(leaves, arrives)
        total += arrives
        leaves, arrives = arrives, leaves
    return total, sent


def in_chunks(send):
    """As Baidu's: add on the way round, then hand the finished chunks round."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    chunks, sent = list(send.clone().chunk(world_size)), 0
    arrives = torch.zeros_like(chunks[0])
    for step in range(world_size - 1):
        sent += pass_on(chunks[(rank - step) % world_size], arrives)
        chunks[(rank - step - 1) % world_size] += arrives
    for step in range(world_size - 1):
        sent += pass_on(chunks[(rank - step + 1) % world_size], arrives)
        chunks[(rank - step) % world_size].copy_(arrives)
    return torch.cat(chunks), sent


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    mine = torch.full((EACH * world_size,), rank + 1.0, device=device)
    right = world_size * (world_size + 1) / 2  # 1 + 2 + ...
    wrong, facts = (rank + 1) * ((world_size + 1) // 2), {}  # itself, several times
    for way, value in {of_2017: wrong, corrected: right, in_chunks: right}.items():
        total, sent = way(mine)
        if total.tolist() != [value] * len(mine):
            raise AssertionError(f"{way}: {total[:3].tolist()}, expected {value}")
        told = f"{way.__name__}: {value:g}, sent {sent} numbers"
        print(f"[rank {rank}] {told}", flush=True)
        facts[way.__name__] = {"sum": value, "sent": sent}
    return facts


# --- the same in every program: join the group, run main, leave whatever happens ---


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


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
