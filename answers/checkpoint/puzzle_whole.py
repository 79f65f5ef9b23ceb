"""Hints for ddp_lab/checkpoint/puzzle_whole.py, and an answer.

1. What must be on the disk before the file gets its name?
2. Bytes first, then the name, each with its sync; then all ranks meet.
"""


def whole(do, rank):
    if rank == 0:
        for what in ("write", "sync file", "rename", "sync folder"):
            do(what)
    dist.barrier()
