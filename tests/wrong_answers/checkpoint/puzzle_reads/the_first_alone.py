def reads(rows, rank, world_size, writers):
    return [rank * rows // world_size // (rows // writers)]
