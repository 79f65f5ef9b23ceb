def variance(mine):
    sums = torch.tensor([len(mine), mine.sum(), mine.dot(mine)], dtype=mine.dtype)
    dist.all_reduce(sums)
    return (sums[0] * sums[2] - sums[1] ** 2) / sums[0] ** 2
