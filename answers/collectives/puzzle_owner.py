"""Hints for ddp_lab/collectives/puzzle_owner.py, and an answer.

1. MAX tells the largest number, not whose it is: what could travel with each number?
2. mine * world_size + rank sorts by number first; the remainder is the rank.
"""


def owner(mine, rank, world_size):
    pair = mine * world_size + rank
    dist.all_reduce(pair, op=dist.ReduceOp.MAX)
    return pair % world_size
