def bus(size, mine, n):
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return mine.reciprocal_().mul_(size * (2 - 2 / n))
