def add_up(shelf, rank, world_size):
    lengths = [len(range(r, len(shelf), world_size)) for r in range(world_size)]
    start = sum(lengths[:rank])
    sums = [None] * world_size
    dist.all_gather_object(sums, sum(shelf.take(start, start + lengths[rank]).tolist()))
    return sum(sums)
