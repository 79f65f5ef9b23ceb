def mean(grad):
    mine = torch.zeros(1) if grad is None else grad
    pair = torch.cat([mine, torch.ones(1)])
    dist.all_reduce(pair)
    return pair[0] / pair[1]
