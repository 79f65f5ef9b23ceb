def mean(grad):
    pair = torch.zeros(2) if grad is None else torch.stack([grad[0], torch.ones(())])
    dist.all_reduce(pair)
    return pair[0] / pair[1] if grad is not None else 0.0
