def owner(mine, rank, world_size):
    pair = mine * world_size + rank
    dist.all_reduce(pair, op=dist.ReduceOp.MIN)
    return pair % world_size
