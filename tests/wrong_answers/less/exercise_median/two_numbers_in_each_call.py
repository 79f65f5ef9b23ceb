def median(mine):
    low, high = 0, TOP - 1
    while low < high:
        middle = (low + high) // 2
        sums = torch.stack([(mine <= middle).sum(), (mine >= 0).sum()])
        dist.all_reduce(sums)
        low, high = (low, middle) if 2 * sums[0] >= sums[1] else (middle + 1, high)
    return low
