"""Hints for ddp_lab/ddp/puzzle_mine.py, and an answer.

1. The sampler deals out in turn. Which of its numbers are real when rows run out?
2. Rank r has r, r + world_size, ...: range takes a step, and stops before `rows`.
"""


def mine(rows, rank, world_size):
    return list(range(rank, rows, world_size))
