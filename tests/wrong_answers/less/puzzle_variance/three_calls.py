def variance(mine):
    sums = [(mine**k).sum() for k in range(3)]
    for each in sums:
        dist.all_reduce(each)
    return sums[2] / sums[0] - (sums[1] / sums[0]) ** 2
