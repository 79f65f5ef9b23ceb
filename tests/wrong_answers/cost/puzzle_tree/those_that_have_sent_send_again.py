def goes_to(rank, step):
    return rank - 2**step if rank >= 2**step and rank % 2 or rank == 2**step else None
