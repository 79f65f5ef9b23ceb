"""Hints for ddp_lab/inside/puzzle_order.py, and an answer.

1. Which bucket's turn is it, and what if that one is not full, but a later one is?
2. A loop: as long as bucket number `left` is there and full, send it, and count on.
"""


def leave(full, left, send):
    while left < len(full) and full[left]:
        send(left)
        left += 1
