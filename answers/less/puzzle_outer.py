"""Hints for ddp_lab/less/puzzle_outer.py, and an answer.

1. How far has this rank come from the weight that all had in common, and what is the
   mean of that over the ranks?
2. step = (mine - common) / world_size; all_reduce it; then common + rate * step.
"""


def outer(common, mine, rate, world_size):
    step = (mine - common) / world_size
    dist.all_reduce(step)
    return common + rate * step
