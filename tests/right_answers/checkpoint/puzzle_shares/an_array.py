import numpy as np


def shares(rows, rank, world_size):
    block = int(np.ceil(rows / world_size))
    return np.arange(rows)[rank * block : (rank + 1) * block]
