# %% wrong: its own clock
def bus(size, mine, n):
    seconds = mine.clone()
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return 2 * (n - 1) / n * size / seconds


# %% wrong: the algorithm's bandwidth
def bus(size, mine, n):
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return size / mine


# %% right: what both halves carry
def bus(size, mine, n):
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    sent = size / n * (n - 1)  # by a rank, to scatter the sums; then to gather them
    return [(sent + sent) / mine.item()]
