"""Hints for ddp_lab/tensor/exercise_loss.py, and an answer.

1. The loss of a position is log(sum of exp(logit)) - logit of the target. Which three
   numbers does a rank need from the others for that, and in which order?
2. First all_reduce each position's largest logit with dist.ReduceOp.MAX. Then sum two
   more numbers of each position: the sum of exp(logit - largest), and the target's
   logit, which is 0 on the ranks that do not have the word.
3. With these, probabilities are exp(logit - log_sum_exp). The gradient is that, minus 1
   at the target on the rank that has it; positions with -100 get 0, and everything is
   divided by the number of the other positions.
"""


def loss_and_gradient(logits, targets, first):
    counts = targets != -100
    row = targets - first
    mine = counts & (row >= 0) & (row < logits.size(1))
    row = torch.where(mine, row, 0).unsqueeze(1)
    largest = logits.amax(1)
    dist.all_reduce(largest, dist.ReduceOp.MAX)  # every rank holds each one's largest
    logits = logits - largest.unsqueeze(1)
    right = logits.gather(1, row).squeeze(1) * mine
    sums = torch.stack([logits.exp().sum(1), right])
    dist.all_reduce(sums)  # every rank now holds both sums over all words
    log_sum_exp, right = sums[0].log(), sums[1]
    loss = ((log_sum_exp - right) * counts).sum() / counts.sum()
    gradient = (logits - log_sum_exp.unsqueeze(1)).exp()
    gradient.scatter_add_(1, row, -mine.to(gradient).unsqueeze(1))
    return loss, gradient * counts.unsqueeze(1) / counts.sum()
