"""Hints for ddp_lab/checkpoint/puzzle_rest.py, and an answer.

1. Which rows does the sampler deal to this rank in the whole epoch?
2. Every world_size-th from place `rank` on; leave out done * size of those.
"""


def rest(order, rank, world_size, done, size):
    return order[rank::world_size][done * size :]
