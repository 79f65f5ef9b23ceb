"""Hints for ddp_lab/scale/puzzle_next.py, and an answer.

1. How many ranks does one stage have, and how are they numbered?
2. The next stage's ranks follow those of this one: data * tensor further. After the
   last rank comes rank 0 again.
"""


def next_stage(rank, pipeline, data, tensor):
    return (rank + data * tensor) % (pipeline * data * tensor)
