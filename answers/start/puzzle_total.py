"""Hints for ddp_lab/start/puzzle_total.py, and an answer.

1. all_reduce returns None: where does it leave the sum?
2. It writes the sum over what you give it: give it mine.clone(), and return that.
"""


def total(mine):
    both = mine.clone()
    dist.all_reduce(both)
    return both
