def variance(mine):
    off = mine - 10  # any number that all ranks agree on
    sums = torch.tensor([len(off), off.sum(), off @ off], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[2] - sums[1] ** 2 / sums[0]) / sums[0]
