"""Hints for ddp_lab/model/puzzle_back.py, and an answer.

1. What does a stage need from its right neighbor, and what does its left one need?
2. recv into grad unless right is None; send grad * weight to left unless left is None.
"""


def back(grad, x, weight, left, right):
    if right is not None:
        dist.recv(grad, right)
    if left is not None:
        dist.send(grad * weight, left)
    return grad * x
