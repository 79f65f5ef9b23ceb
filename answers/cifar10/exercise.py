"""Hints for ddp_lab/cifar10/exercise.py, and an answer.

1. Means and variances of parts of different sizes cannot simply be averaged. Which sums
   over all images do you need to compute both?
2. Three for each channel: the count, the sum, and the sum of squares. Stack them into
   one tensor, and one dist.all_reduce adds up all three. Far from 0, float32 has too
   few digits for the squares: begin with x = x.double().
3. torch.stack([torch.ones_like(x), x, x * x]).sum(dim=1) holds this rank's three sums.
   After the all_reduce, mean = total / count and variance = squares / count - mean**2.
"""


def batch_statistics(x):
    x = x.double()  # in float32 the difference below would lose its digits
    sums = torch.stack([torch.ones_like(x), x, x * x]).sum(dim=1)  # (3, channels)
    dist.all_reduce(sums)  # every rank now holds count, sum and sum of squares of all
    count, total, squares = sums
    mean = total / count
    return mean, squares / count - mean**2
