def reads(rows, rank, world_size, writers):
    return list(range(rank, writers, world_size)) or [rank % writers]
