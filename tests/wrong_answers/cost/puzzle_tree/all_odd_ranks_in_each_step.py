def goes_to(rank, step):
    return rank - 1 if rank % 2 else None
