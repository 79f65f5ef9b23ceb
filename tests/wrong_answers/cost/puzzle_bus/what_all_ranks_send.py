def bus(size, mine, n):
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return 2 * (n - 1) * size / mine
