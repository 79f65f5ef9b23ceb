def mean(grad):
    own = torch.zeros(2) if grad is None else torch.cat([grad, (grad > 0).float()])
    dist.all_reduce(own)
    return own[0] / own[1].clamp(min=1)
