def idle(mine):
    last = mine.max()
    dist.all_reduce(last, op=dist.ReduceOp.MAX)
    return ((last - mine.diff(dim=1).sum()) / last).item()
