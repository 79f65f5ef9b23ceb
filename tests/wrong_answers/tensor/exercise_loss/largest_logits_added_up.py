def loss_and_gradient(logits, targets, first):
    counts = targets != -100
    row = targets - first
    mine = counts & (row >= 0) & (row < logits.size(1))
    row = torch.where(mine, row, 0).unsqueeze(1)
    largest = logits.amax(1)
    dist.all_reduce(largest)
    logits = logits - largest.unsqueeze(1)
    right = logits.gather(1, row).squeeze(1) * mine
    sums = torch.stack([logits.exp().sum(1), right])
    dist.all_reduce(sums)
    log_sum_exp, right = sums[0].log(), sums[1]
    loss = ((log_sum_exp - right) * counts).sum() / counts.sum()
    gradient = (logits - log_sum_exp.unsqueeze(1)).exp()
    gradient.scatter_add_(1, row, -mine.to(gradient).unsqueeze(1))
    return loss, gradient * counts.unsqueeze(1) / counts.sum()
