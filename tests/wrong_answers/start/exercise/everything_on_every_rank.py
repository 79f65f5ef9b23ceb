def add_up(shelf, rank, world_size):
    return shelf.take(0, len(shelf)).sum()
