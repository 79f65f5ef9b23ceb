"""Hints for ddp_lab/inside/puzzle_variance.py, and an answer.

1. Which sums over all rows give both, whichever rank has which row?
2. The variance is the mean of the squares, less the square of the mean. So sum up x,
   its squares, and the number of rows.
"""


def variance(x):
    sums = torch.stack([x.sum(), x.square().sum(), torch.ones_like(x).sum()])
    dist.all_reduce(sums)  # every rank now holds the sums over all rows
    mean, square = sums[:2] / sums[2]
    return torch.stack([mean, square - mean.square()])
