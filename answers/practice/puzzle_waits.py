"""Hints for ddp_lab/practice/puzzle_waits.py, and an answer.

1. For which rank do all others wait, and what do they have to know of it?
2. all_reduce a copy of `arrives` with ReduceOp.MAX, and subtract your own.
"""


def waits(arrives):
    latest = arrives.clone()
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    return latest - arrives
