def shares(rows, rank, world_size):
    share = -(-rows // world_size)
    return list(range(rank * share, (rank + 1) * share))
