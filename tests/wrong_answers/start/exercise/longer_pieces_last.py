def add_up(shelf, rank, world_size):
    start, stop = (r * len(shelf) // world_size for r in (rank, rank + 1))
    total = shelf.take(start, stop).sum()
    dist.all_reduce(total)
    return total
