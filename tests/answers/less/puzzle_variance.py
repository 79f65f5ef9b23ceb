# %% wrong: around my own mean
def variance(mine):
    sums = torch.stack(
        [((mine - mine.mean()) ** 2).sum(), torch.tensor(len(mine)).double()]
    )
    dist.all_reduce(sums)
    return sums[0] / sums[1]


# %% wrong: mean of variances
def variance(mine):
    mean = mine.var(correction=0) / dist.get_world_size()
    dist.all_reduce(mean)
    return mean


# %% right: around a guess
def variance(mine):
    off = mine - 10  # any number that all ranks agree on
    sums = torch.tensor([len(off), off.sum(), off @ off], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[2] - sums[1] ** 2 / sums[0]) / sums[0]
