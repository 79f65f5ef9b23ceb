"""Hints for ddp_lab/inside/puzzle_mean.py, and an answer.

1. By what do you divide, and who knows that number?
2. A rank without a gradient sends zeros. Send two numbers: the gradient, and how many
   gradients that is: 1 or 0.
"""


def mean(grad):
    pair = torch.zeros(2) if grad is None else torch.stack([grad[0], torch.ones(())])
    dist.all_reduce(pair)  # every rank now holds the sum, and how many are in it
    return pair[0] / pair[1]
