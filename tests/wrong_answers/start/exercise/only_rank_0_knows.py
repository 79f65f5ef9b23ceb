def add_up(shelf, rank, world_size):
    length, extra = divmod(len(shelf), world_size)
    start = rank * length + min(rank, extra)  # the first `extra` ranks hold one more
    total = shelf.take(start, start + length + (rank < extra)).sum()
    dist.reduce(total, dst=0)
    return total if rank == 0 else None
