"""Hints for ddp_lab/cost/puzzle_bus.py, and an answer.

1. Whose time counts? Which operation of an all_reduce finds it, instead of a sum?
2. dist.ReduceOp.MAX. Then bandwidth is size / time, times what each rank sends of the
   tensor in an all_reduce: 2 * (n - 1) / n.
"""


def bus(size, mine, n):
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return 2 * (n - 1) / n * size / mine
