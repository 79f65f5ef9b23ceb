def mean(grad):
    mine = torch.full((1,), torch.nan) if grad is None else grad
    pair = torch.cat([mine.nan_to_num(), 1.0 - mine.isnan().float()])
    dist.all_reduce(pair)
    return pair[:1] / pair[1:]
