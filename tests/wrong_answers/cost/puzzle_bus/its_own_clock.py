def bus(size, mine, n):
    seconds = mine.clone()
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return 2 * (n - 1) / n * size / seconds
