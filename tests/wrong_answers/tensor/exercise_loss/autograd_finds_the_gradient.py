def loss_and_gradient(logits, targets, first):
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, part):
            whole = part.clone()
            dist.all_reduce(whole)
            return whole

        @staticmethod
        def backward(ctx, grad):
            return grad

    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        counts = targets != -100
        row = targets - first
        mine = counts & (row >= 0) & (row < logits.size(1))
        row = torch.where(mine, row, 0).unsqueeze(1)
        largest = logits.detach().amax(1)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        powers = Sum.apply((logits - largest.unsqueeze(1)).exp().sum(1))
        right = Sum.apply(logits.gather(1, row).squeeze(1) * mine)
        losses = (largest + powers.log() - right) * counts
        loss = losses.sum() / counts.sum()
        loss.backward()
    return loss.detach(), logits.grad
