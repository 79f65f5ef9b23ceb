def bus(size, mine, n):
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    sent = size / n * (n - 1)  # by a rank, to scatter the sums; then to gather them
    return [(sent + sent) / mine.item()]
