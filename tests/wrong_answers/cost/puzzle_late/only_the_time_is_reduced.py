def late(mine):
    last = mine[0].clone()
    dist.all_reduce(last, dist.ReduceOp.MAX)
    return dist.get_rank() if mine[0] == last else None
