"""Hints for ddp_lab/less/puzzle_variance.py, and an answer.

1. Which three sums of a rank's numbers can be added up over the ranks?
2. Stack the count, the sum and the sum of squares, reduce them in one call, and divide
   once, at the end.
"""


def variance(mine):
    sums = torch.stack([(mine**k).sum() for k in range(3)])
    dist.all_reduce(sums)
    count, total, squares = sums
    return squares / count - (total / count) ** 2
