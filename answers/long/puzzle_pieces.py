"""Hints for ddp_lab/long/puzzle_pieces.py, and an answer.

1. Piece p costs p + 1 tiles. Which two pieces cost as much together as the first and
   the last one?
2. Rank 0 gets the first piece and the last one; go inwards from both ends.
"""


def pieces(rank, n):
    return [rank, 2 * n - 1 - rank]
