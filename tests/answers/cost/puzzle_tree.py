# %% wrong: all odd ranks in each step
def goes_to(rank, step):
    return rank - 1 if rank % 2 else None


# %% wrong: always to rank 0
def goes_to(rank, step):
    return 0 if rank == step + 1 else None


# %% wrong: to the right
def goes_to(rank, step):
    return rank + 2**step if rank % 2 ** (step + 1) == 0 else None


# %% right: by bits
def goes_to(rank, step):
    lowest = rank & -rank
    return rank ^ lowest if lowest == 1 << step else None
