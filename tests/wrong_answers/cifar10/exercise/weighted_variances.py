def batch_statistics(x):
    x = x.double()
    n = torch.full_like(x[0], len(x))
    sums = torch.stack([n, n * x.mean(dim=0), n * x.var(dim=0, correction=0)])
    dist.all_reduce(sums)
    return sums[1] / sums[0], sums[2] / sums[0]
