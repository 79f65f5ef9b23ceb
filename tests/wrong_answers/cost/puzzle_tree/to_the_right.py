def goes_to(rank, step):
    return rank + 2**step if rank % 2 ** (step + 1) == 0 else None
