def shares(rows, rank, world_size):
    return list(range(rows))
