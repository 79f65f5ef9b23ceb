"""Hints for ddp_lab/less/exercise.py, and an answer.

1. What is lost when a number becomes a sign and a common size? In which later step
   could a rank make up for it?
2. As in top_k: begin with gradient + owed, and leave in owed what the signs and the
   scale do not say. The scale is one number that suits all: the mean of the sizes.
3. Let total = gradient + owed, bits = total > 0 and scale = total.abs().mean(). The
   other ranks read torch.where(bits, scale, -scale); owed.copy_(total - that).
"""


def one_bit(gradient, owed):
    total = gradient + owed
    bits, scale = total > 0, total.abs().mean()
    owed.copy_(total - torch.where(bits, scale, -scale))  # for later steps
    return bits, scale
