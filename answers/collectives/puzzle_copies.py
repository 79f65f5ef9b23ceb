"""Hints for ddp_lab/collectives/puzzle_copies.py, and an answer.

1. Which list must the root deal out, so that every piece is the same?
2. dist.scatter takes the list on the root only: [row] * world_size, elsewhere None.
"""


def copies(row, rank, world_size):
    buf = torch.empty_like(row)
    dist.scatter(buf, [row] * world_size if rank == 0 else None, src=0)
    return buf
