"""Hints for ddp_lab/long/puzzle_counts.py, and an answer.

1. Which call gives rank 2 the entry that every other rank has for it?
2. dist.all_to_all_single(recv_buf, going), with a recv_buf of the same shape and type.
"""


def coming(going):
    counts = torch.empty_like(going)
    dist.all_to_all_single(counts, going)
    return counts
