def reads(rows, rank, world_size, writers):
    mine, each = rows // world_size, rows // writers
    return list(range(rank * mine // each, ((rank + 1) * mine - 1) // each)) or [0]
