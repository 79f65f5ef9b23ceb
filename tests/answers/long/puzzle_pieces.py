# %% wrong: every nth
def pieces(rank, n):
    return [rank, rank + n]


# %% wrong: neighbors
def pieces(rank, n):
    return [2 * rank, 2 * rank + 1]


# %% wrong: one piece each
def pieces(rank, n):
    return [rank]


# %% wrong: the ends alone
def pieces(rank, n):
    return [0, 2 * n - 1]


# %% right: as a tensor
def pieces(rank, n):
    first, second = torch.arange(2 * n).chunk(2)
    return torch.stack([first, second.flip(0)])[:, rank]


# %% right: in numpy
def pieces(rank, n):
    import numpy as np

    return np.array([rank, 2 * n - 1 - rank])
