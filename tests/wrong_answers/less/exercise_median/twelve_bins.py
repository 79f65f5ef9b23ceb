def median(mine):
    counts = torch.bincount(mine * 12 // TOP, minlength=12)
    dist.all_reduce(counts)
    at = int((2 * counts.cumsum(0) < counts.sum()).sum())
    return (2 * at + 1) * TOP // 24
