def bus(size, mine, n):
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return (n - 1) / n * size / mine
