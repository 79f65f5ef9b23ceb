"""Exercise: every rank holds a number; all are to know the sum, by messages alone.

Once `sum_by_messages` is written, two ranks print:

    [rank 0] brought 1, knows the sum 5
    [rank 1] brought 4, knows the sum 5
"""

import faulthandler
import secrets
from unittest import mock

import torch
import torch.distributed as dist

PATIENCE = 20  # seconds
# How the names of collectives begin.
COLLECTIVE = {"all", "barrier", "broadcast", "gather", "monitored", "reduce", "scatter"}


def sum_by_messages(send_buf, rank, world_size):
    return None  # the cell's function stands here


def without_collectives():
    """Take the collectives away for a while."""
    names = [name for name in dir(dist) if name.split("_")[0] in COLLECTIVE]
    return mock.patch.multiple(dist, **dict.fromkeys(names, refuse))


def refuse(*args, **kwargs):
    raise AssertionError("a collective was called; messages alone are allowed here")


def main(rank, world_size, device):
    # If a message never comes, each rank shows the line where it waits, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts = {}
    for brought in ((rank + 1) ** 2, secrets.randbelow(1000)):
        send_buf = torch.tensor([brought], device=device)  # (1,)
        with without_collectives():
            total = sum_by_messages(send_buf, rank, world_size)
        answers = [None] * world_size
        # Every rank ends with what all brought and found: they come to one verdict.
        answer = brought, None if total is None else int(total)
        dist.all_gather_object(answers, answer)
        numbers, sums = (list(column) for column in zip(*answers, strict=True))
        if sums == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if sums != [sum(numbers)] * world_size:
            raise AssertionError(f"the ranks hold {sums}, expected {sum(numbers)}")
        if not facts:
            known = f"brought {brought}, knows the sum {sums[rank]}"
            print(f"[rank {rank}] {known}", flush=True)
            facts = {"solved": True, "sum": sums[rank]}
    return facts
