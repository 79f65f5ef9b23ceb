def shares(rows, rank, world_size):
    share = (rows + world_size - 1) // world_size
    return range(min(rank * share, rows), min((rank + 1) * share, rows))
