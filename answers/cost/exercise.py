"""Hints for ddp_lab/cost/exercise.py, and an answer.

1. In a tree half of the ranks are idle after the first step, and wait for the sum to
   come back. Could both of a pair have the pair's sum after the first step?
2. In a step each rank may send one message and receive one. So all ranks send, each to
   its partner; after a step with the distances 1, 2, 4, ... every rank's sum covers
   twice as many ranks, and no rank twice.
3. The partner of rank r at distance d is r ^ d. In each step every rank sends the whole
   of its buffer, Message(r, r ^ d, 0, 1), and d doubles from step to step.
"""


def quick(n):
    distances = [2**k for k in range(n.bit_length() - 1)]
    return [[Message(r, r ^ d, 0, 1) for r in range(n)] for d in distances]
