"""Hints for ddp_lab/long/exercise_router.py, and an answer.

1. An expert has room for tokens of all ranks. What does this rank's count say about
   whether it is full?
2. Sum `wanted` over the ranks first. Then an expert that more tokens chose than the
   mean gets a smaller bias than it had, and one that fewer chose a larger one.
3. bias + 0.05 * sign(mean - total) is DeepSeek's rule. The step must be small against
   the scores, which spread over a few units, and large enough for 150 steps.
"""


def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    return bias + 0.05 * torch.sign(total.float().mean() - total)
