"""Hints for ddp_lab/ddp/puzzle_accuracy.py, and an answer.

1. Is the mean of 8 of 8 and 0 of 1 the accuracy of these nine?
2. Put both counts into one tensor, sum it over the ranks, and divide afterwards.
"""


def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts)
    return counts[0] / counts[1]
