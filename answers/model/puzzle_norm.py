"""Hints for ddp_lab/model/puzzle_norm.py, and an answer.

1. Of how many features is the mean taken, and how many does this rank see?
2. all_reduce the sum of the squares, divide by the number of all features, then root.
"""


def normed(mine, world_size):
    total = (mine**2).sum()
    dist.all_reduce(total)
    return mine / (total / (mine.numel() * world_size)) ** 0.5
