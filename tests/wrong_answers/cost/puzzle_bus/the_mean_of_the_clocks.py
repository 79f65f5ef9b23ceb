def bus(size, mine, n):
    dist.all_reduce(mine)
    return 2 * (n - 1) / n * size / (mine / n)
