"""Fail on rank 1 in one of five ways, which over NCCL all begin with a silence.

    torchrun --standalone --nproc-per-node 2 fails.py raises

A host does not wait in a collective of a device: it puts it into a queue, and goes on
to the next line that reads a number.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.start.hello import process_group

NUMBERS = 2**20  # far more than a message that NCCL would let through unmatched


def add_up(mine: torch.Tensor) -> float:
    """Return the sum over all ranks of what they hold."""
    dist.all_reduce(mine)  # every rank now holds the sums
    return mine.sum().item()


def fail(how: str, device: torch.device) -> None:
    """Do on rank 1 what its name says, while the others add up."""
    if how == "raises":
        raise ValueError("a sample is broken")
    if how == "skips":
        time.sleep(3600)  # it writes a checkpoint, say
    if how == "shapes":
        add_up(torch.ones(NUMBERS // 2, device=device))  # its last batch is smaller
    if how == "memory":
        torch.empty(2**42, dtype=torch.uint8, device=device)  # 4 TiB
    if how == "leaves":
        sys.exit(0)  # it has no samples left


@record
def run() -> None:
    with process_group() as (rank, world_size, device):
        if (total := add_up(torch.ones(4, device=device))) != 4 * world_size:
            raise AssertionError(f"the sum is {total}")
        print(f"[rank {rank}] all are here", flush=True)
        if rank == 1:
            fail(sys.argv[1], device)
        else:
            add_up(torch.ones(NUMBERS, device=device))


if __name__ == "__main__":
    run()
