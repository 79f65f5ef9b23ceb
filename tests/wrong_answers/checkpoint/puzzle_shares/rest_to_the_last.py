def shares(rows, rank, world_size):
    share = rows // world_size
    end = rows if rank == world_size - 1 else (rank + 1) * share
    return list(range(rank * share, end))
