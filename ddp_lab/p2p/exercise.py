"""Exercise: every rank holds a number; all are to know the sum, by messages alone.

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/exercise.py

Once `sum_by_messages` is written, two ranks print:

    [rank 0] brought 1, knows the sum 5
    [rank 1] brought 4, knows the sum 5

Written by notebooks/01_point_to_point.ipynb.
"""

import faulthandler
import gc
import json
import os
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE = 20  # seconds
COLLECTIVES = "all_reduce reduce all_gather gather broadcast all_gather_object"


def sum_by_messages(send_buf, rank, world_size):
    """Return the sum of all ranks' send_buf, on every rank, as a tensor of shape (1,).

    send_buf, of shape (1,), holds (rank + 1) ** 2: so 2 ranks make 5, 3 make 14 and
    4 make 30. Only dist.send, recv, isend, irecv and batch_isend_irecv may be used, for
    any number of ranks. A buffer to receive into: torch.empty_like(send_buf).
    """
    return None  # your code here


def refuse(*args, **kwargs):
    raise AssertionError("a collective was called; messages alone are allowed here")


@record
def main():
    with process_group() as (rank, world_size, device):
        # If a message never comes, each rank shows the line where it waits, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        # gloo's send and recv know host memory only, even where there is a GPU.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        send_buf = torch.tensor([(rank + 1) ** 2], device=device)  # (1,)
        with mock.patch.multiple(dist, **dict.fromkeys(COLLECTIVES.split(), refuse)):
            total = sum_by_messages(send_buf.clone(), rank, world_size)
        got = None if total is None else int(total)
        sums = [None] * world_size
        # Every rank ends with everybody's result, so all come to the same verdict.
        dist.all_gather_object(sums, got)
        if sums == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            return
        expected = sum((r + 1) ** 2 for r in range(world_size))
        if sums != [expected] * world_size:
            raise AssertionError(f"the ranks hold {sums}, expected {expected} on each")
        brought = send_buf.item()
        print(f"[rank {rank}] brought {brought}, knows the sum {got}", flush=True)
        print(json.dumps({"solved": True, "sum": got}), flush=True)


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
