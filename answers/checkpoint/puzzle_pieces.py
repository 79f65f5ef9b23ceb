"""Hints for ddp_lab/checkpoint/puzzle_pieces.py, and an answer.

1. What may .metadata promise, and how does rank 0 know that it is true?
2. write("piece"), dist.barrier(), and then write(".metadata") on rank 0 only.
"""


def pieces(write, rank):
    write("piece")
    dist.barrier()
    if rank == 0:
        write(".metadata")
