def goes_to(rank, step):
    return 0 if rank == step + 1 else None
