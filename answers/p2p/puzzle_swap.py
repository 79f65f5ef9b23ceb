"""Hints for ddp_lab/p2p/puzzle_swap.py, and an answer.

1. If both partners call send first, what does each of them wait for?
2. Make a dist.P2POp of isend and one of irecv, into another buffer, start both with
   dist.batch_isend_irecv, and wait() for each work that it returns.
"""


def swap(mine, rank, partner):
    theirs = torch.empty_like(mine)
    messages = [
        dist.P2POp(dist.isend, mine, partner),
        dist.P2POp(dist.irecv, theirs, partner),
    ]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    return theirs
