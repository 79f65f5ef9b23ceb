def owner(mine, rank, world_size):
    pair = rank * 100 + mine
    dist.all_reduce(pair, op=dist.ReduceOp.MAX)
    return pair // 100
