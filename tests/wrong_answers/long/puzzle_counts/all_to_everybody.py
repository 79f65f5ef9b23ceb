def coming(going):
    n = len(going)
    every = torch.empty(n * n, dtype=going.dtype)
    dist.all_to_all_single(every, going.repeat(n))
    return every.view(n, n)[:, dist.get_rank()]
