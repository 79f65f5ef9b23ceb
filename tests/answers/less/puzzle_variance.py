# %% wrong: around my own mean
def variance(mine):
    sums = torch.stack(
        [((mine - mine.mean()) ** 2).sum(), torch.tensor(len(mine)).double()]
    )
    dist.all_reduce(sums)
    return sums[0] / sums[1]


# %% wrong: mean of variances
def variance(mine):
    mean = mine.var(correction=0) / dist.get_world_size()
    dist.all_reduce(mean)
    return mean


# %% right: around a guess
def variance(mine):
    off = mine - 10  # any number that all ranks agree on
    sums = torch.tensor([len(off), off.sum(), off @ off], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[2] - sums[1] ** 2 / sums[0]) / sums[0]


# %% right: as a number
def variance(mine):
    sums = torch.stack([mine.sum(), mine.square().sum(), torch.tensor(len(mine))])
    dist.all_reduce(sums)
    total, squares, count = sums.tolist()
    return squares / count - (total / count) ** 2


# %% right: from pairs
def variance(mine):
    sums = torch.tensor([len(mine), mine.sum(), mine.dot(mine)], dtype=mine.dtype)
    dist.all_reduce(sums)
    return (sums[0] * sums[2] - sums[1] ** 2) / sums[0] ** 2


# %% right: functional
import torch.distributed._functional_collectives as funcol


def variance(mine):
    powers = mine.new_tensor([[0], [1], [2]])
    sums = funcol.all_reduce((mine**powers).sum(1), "sum", dist.group.WORLD)
    _, mean, square = (sums / sums[0]).tolist()
    return square - mean**2
