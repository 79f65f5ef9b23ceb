# %% wrong: rest to the last
def shares(rows, rank, world_size):
    share = rows // world_size
    end = rows if rank == world_size - 1 else (rank + 1) * share
    return list(range(rank * share, end))


# %% wrong: rounded down
def shares(rows, rank, world_size):
    share = rows // world_size
    return list(range(rank * share, (rank + 1) * share))


# %% right: as a range
def shares(rows, rank, world_size):
    share = (rows + world_size - 1) // world_size
    return range(min(rank * share, rows), min((rank + 1) * share, rows))
