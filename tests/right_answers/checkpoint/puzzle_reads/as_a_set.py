def reads(rows, rank, world_size, writers):
    wanted = range(rank * rows // world_size, (rank + 1) * rows // world_size)
    return {row * writers // rows for row in wanted}
