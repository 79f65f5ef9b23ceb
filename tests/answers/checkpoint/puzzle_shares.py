# %% wrong: rest to the last
def shares(rows, rank, world_size):
    share = rows // world_size
    end = rows if rank == world_size - 1 else (rank + 1) * share
    return list(range(rank * share, end))


# %% wrong: rounded down
def shares(rows, rank, world_size):
    share = rows // world_size
    return list(range(rank * share, (rank + 1) * share))


# %% right: an array
import numpy as np


def shares(rows, rank, world_size):
    block = int(np.ceil(rows / world_size))
    return np.arange(rows)[rank * block : (rank + 1) * block]


# %% right: as a range
def shares(rows, rank, world_size):
    share = (rows + world_size - 1) // world_size
    return range(min(rank * share, rows), min((rank + 1) * share, rows))


# %% right: chunk
def shares(rows, rank, world_size):
    pieces = torch.arange(rows).chunk(world_size)
    return pieces[rank] if rank < len(pieces) else []
