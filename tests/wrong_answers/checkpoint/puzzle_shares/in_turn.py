def shares(rows, rank, world_size):
    return list(range(rank, rows, world_size))
