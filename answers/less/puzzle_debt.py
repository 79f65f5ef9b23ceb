"""Hints for ddp_lab/less/puzzle_debt.py, and an answer.

1. What is left of gradient + owed once its largest number has gone?
2. torch.zeros_like(total) and total.abs().argmax() make the message; what is owed is
   the total without the message.
"""


def top_one(gradient, owed):
    total = gradient + owed
    sent, place = torch.zeros_like(total), total.abs().argmax()
    sent[place] = total[place]
    return sent, total - sent
