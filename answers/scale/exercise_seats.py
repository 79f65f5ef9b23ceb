"""Hints for ddp_lab/scale/exercise_seats.py, and an answer.

1. The last dimension's rings join neighbors. How far apart are neighbors in a ring of
   the dimension before it? How many of its steps then leave a machine?
2. With stride s, machine // s ranks of a ring sit in one machine: a ring of n ranks has
   n steps, and leaves a machine n // (machine // s) times, or never if all fit in.
   If the stride is a machine or more, every step leaves.
3. For each of itertools.permutations(sizes), go from the last name to the first, with
   stride 1, then times each size; add up sent times the share of steps that leave; take
   the order with the least. There are at most 24 of them.
"""


def order(sizes, sent, machine):
    from itertools import permutations

    def wire(names):
        stride, total = 1, 0
        for name in reversed(names):
            near = min(sizes[name], max(1, machine // stride))
            share = 0 if near == sizes[name] else 1 / near
            total, stride = total + sent[name] * share, stride * sizes[name]
        return total

    return list(min(permutations(sizes), key=wire))
