"""A list of tensors is gathered one by one, then in one collective; printed in turns.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/list.py

Both ways give the same lists; the seconds of each are in the facts:

    [rank 2] gathered 4 lists of 100 tensors, collectives: 100
    [rank 2] gathered 4 lists of 100 tensors, collectives: 1
    [rank 2] spoke as number 2

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

COUNT, SIZE = 100, 64  # tensors in each rank's list, numbers in each tensor


def gather_one_by_one(tensors, world_size):
    """One collective per tensor; returns the list of each rank."""
    lists = [[] for _ in range(world_size)]
    for tensor in tensors:
        copies = [torch.empty_like(tensor) for _ in range(world_size)]
        # Every rank ends up with this one tensor of all the ranks.
        dist.all_gather(copies, tensor)
        for one_list, copy in zip(lists, copies, strict=True):
            one_list.append(copy)
    return lists


def gather_in_one(tensors, world_size):
    """Glue the list together, gather once, cut it apart again; the same result."""
    send_buf = torch.cat(tensors)  # (COUNT * SIZE,)
    recv_buf = send_buf.new_empty(world_size * send_buf.numel())
    # Every rank ends up with all the glued lists, one after the other.
    dist.all_gather_into_tensor(recv_buf, send_buf)
    # chunk makes views: cutting apart copies nothing.
    return [glued.chunk(len(tensors)) for glued in recv_buf.chunk(world_size)]


def speak_in_turns(rank, world_size):
    """Each rank prints in its turn; returns the number that it drew while speaking."""
    # The store at which the ranks met hands out numbers, like a counter in a shop.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    for turn in range(world_size):
        if turn == rank:
            number = store.add("spoken", 1) - 1
            # Without flush the line may wait in this process until long after its turn.
            print(f"[rank {rank}] spoke as number {number}", flush=True)
        # Every rank ends up knowing that this turn is over.
        dist.barrier()
    return number


def timed(gather, tensors, world_size):
    """The result and the seconds, all ranks starting together."""
    gather(tensors, world_size)  # the first call also pays for the connections
    dist.barrier()
    start = time.perf_counter()
    lists = gather(tensors, world_size)
    lists[-1][-1].sum().item()  # a GPU only queues the work: wait until it is done
    return lists, time.perf_counter() - start


def my_list(rank, device):
    """Tensor i of rank r holds 1000 r + i everywhere, so each can be told apart."""
    return [torch.full((SIZE,), 1000 * rank + i, device=device) for i in range(COUNT)]


@record
def main():
    with process_group() as (rank, world_size, device):
        # Host memory for gloo: which of these it does on a GPU depends on the release.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        tensors, seconds = my_list(rank, device), []
        expected = [[[1000 * r + i] for i in range(COUNT)] for r in range(world_size)]
        for gather, calls in ((gather_one_by_one, COUNT), (gather_in_one, 1)):
            lists, duration = timed(gather, tensors, world_size)
            seconds.append(duration)
            got = [[t.unique().tolist() for t in one_list] for one_list in lists]
            if got != expected:
                what = f"{gather.__name__} ends with {got[-1][-3:]}"
                raise AssertionError(f"{what}, expected {expected[-1][-3:]}")
            print(
                f"[rank {rank}] gathered {len(lists)} lists of {COUNT} tensors,"
                f" collectives: {calls}",
                flush=True,
            )
        number = speak_in_turns(rank, world_size)
        print(json.dumps({"seconds": seconds, "number": number}), flush=True)
        if number != rank:
            raise AssertionError(f"spoke as number {number}, expected {rank}")


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
