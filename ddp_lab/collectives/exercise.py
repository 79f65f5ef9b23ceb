"""Exercise: build all_reduce out of reduce_scatter and all_gather.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/exercise.py

As long as the function returns None, every rank prints:

    [rank 0] not yet

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

LENGTHS = (12, 7, 1)  # 12 is a multiple of 2, 3 and 4; the others need padding


def all_reduce_by_hand(tensor, rank, world_size):
    """Return the sum of `tensor` over all ranks, on every rank.

    Use dist.reduce_scatter_tensor and dist.all_gather_into_tensor, not all_reduce.
    tensor: (length,), the same length on every rank, any length from 1 up.
    result: (length,), a new tensor; `tensor` itself stays as it was.

    Both collectives want pieces of equal size, one for each rank; where length is not
    a multiple of world_size, something has to be put at the end, and taken off again.

    Target: with 4 ranks, length 7, rank r holding r, r + 1, ..., r + 6:
    [6, 10, 14, 18, 22, 26, 30].
    """
    return None  # your code here


@record
def main():
    with process_group() as (rank, world_size, device):
        # gloo is sure of host memory only for these two, even beside a GPU.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        facts = {"solved": False}
        for length in LENGTHS:
            tensor = torch.arange(rank, rank + length, device=device)  # (length,)
            before, expected = tensor.clone(), tensor.clone()
            # Every rank ends up with the sum of all tensors: the built-in is the truth.
            dist.all_reduce(expected, op=dist.ReduceOp.SUM)
            got = all_reduce_by_hand(tensor, rank, world_size)
            if got is None:
                print(f"[rank {rank}] not yet", flush=True)
                break
            if not torch.equal(got, expected):
                raise AssertionError(
                    f"length {length}: {got.tolist()}, expected {expected.tolist()}"
                )
            if not torch.equal(tensor, before):
                raise AssertionError(f"length {length}: the tensor was changed")
            print(f"[rank {rank}] length {length}: {got.tolist()}", flush=True)
            facts[f"length_{length}"] = got.tolist()
        else:
            facts["solved"] = True
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
