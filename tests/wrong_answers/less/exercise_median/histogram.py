def median(mine):
    counts = torch.bincount(mine, minlength=TOP)
    dist.all_reduce(counts)
    return int((2 * counts.cumsum(0) < counts.sum()).sum())
