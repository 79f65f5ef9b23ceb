def add_up(shelf, rank, world_size):
    length = -(-len(shelf) // world_size)  # 13 on three ranks: 5, 5 and 3
    total = shelf.take(rank * length, (rank + 1) * length).sum()
    dist.all_reduce(total)
    return total
