def variance(mine):
    sums = torch.stack(
        [((mine - mine.mean()) ** 2).sum(), torch.tensor(len(mine)).double()]
    )
    dist.all_reduce(sums)
    return sums[0] / sums[1]
