"""Hints for ddp_lab/model/puzzle_ticks.py, and an answer.

1. When does F0 reach this stage, and how long is it idle before its first backward?
2. "idle" `rank` times at both ends; in between, twice for each stage to the right.
"""


def ticks(rank, stages, m):
    forward, backward = ([f"{way}{i}" for i in range(m)] for way in "FB")
    before, between = ["idle"] * rank, ["idle"] * 2 * (stages - 1 - rank)
    return before + forward + between + backward[::-1] + before
