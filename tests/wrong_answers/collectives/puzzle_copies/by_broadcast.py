def copies(row, rank, world_size):
    dist.broadcast(row, src=0)
    return row
