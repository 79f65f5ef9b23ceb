# %% wrong: all odd ranks in each step
def goes_to(rank, step):
    return rank - 1 if rank % 2 else None


# %% wrong: always to rank 0
def goes_to(rank, step):
    return 0 if rank == step + 1 else None


# %% wrong: distances grow by one
def goes_to(rank, step):
    distance = step + 1
    return rank - distance if rank % (2 * distance) == distance else None


# %% wrong: only two steps
def goes_to(rank, step):
    return [{1: 0, 3: 2}, {2: 0}][step % 2].get(rank)


# %% wrong: the far half first
def goes_to(rank, step):
    return rank - 2**step if rank & 2**step and rank >= 2**step else None


# %% wrong: those that have sent send again
def goes_to(rank, step):
    return rank - 2**step if rank >= 2**step and rank % 2 or rank == 2**step else None


# %% wrong: to the right
def goes_to(rank, step):
    return rank + 2**step if rank % 2 ** (step + 1) == 0 else None


# %% right: as a tensor
def goes_to(rank, step):
    jump = torch.tensor(2**step)
    return rank - jump if rank % (2 * jump) == jump else None


# %% right: by bits
def goes_to(rank, step):
    lowest = rank & -rank
    return rank ^ lowest if lowest == 1 << step else None


# %% right: by halving
def goes_to(rank, step):
    place, rest = divmod(rank, 2**step)
    return (place - 1) * 2**step if place % 2 and not rest else None
