# %% wrong: all features by one sum
# One all_reduce, but of all features: this gathers them.


def normed(mine, world_size):
    every = torch.zeros(world_size, 2, dtype=mine.dtype)
    every[dist.get_rank()] = mine
    dist.all_reduce(every)
    return mine / every.pow(2).mean().sqrt()


# %% wrong: everything gathered
def normed(mine, world_size):
    features = mine.new_empty(world_size * mine.numel())
    dist.all_gather_into_tensor(features, mine)
    return mine / (features**2).mean() ** 0.5


# %% wrong: features summed
def normed(mine, world_size):
    total = mine.clone()
    dist.all_reduce(total)
    return mine / (total**2).mean() ** 0.5


# %% wrong: its own features
def normed(mine, world_size):
    total = (mine**2).sum()
    return mine / (total / mine.numel()) ** 0.5


# %% wrong: mean taken off
def normed(mine, world_size):
    sums = torch.stack([mine.mean(), (mine**2).mean()])
    dist.all_reduce(sums)
    mean, square = sums / world_size
    return (mine - mean) / (square - mean**2) ** 0.5


# %% wrong: not divided
def normed(mine, world_size):
    total = (mine**2).sum()
    dist.all_reduce(total)
    return mine / total**0.5


# %% wrong: roots averaged
def normed(mine, world_size):
    root = (mine**2).mean() ** 0.5
    dist.all_reduce(root)
    return mine / (root / world_size)


# %% wrong: squares summed one by one
def normed(mine, world_size):
    squares = mine**2
    dist.all_reduce(squares)
    return mine / (squares.mean() / world_size).sqrt()


# %% wrong: the largest square
def normed(mine, world_size):
    square = (mine**2).mean()
    dist.all_reduce(square, op=dist.ReduceOp.MAX)
    return mine / square**0.5


# %% right: functional
import torch.distributed._functional_collectives as funcol


def normed(mine, world_size):
    total = funcol.all_reduce(mine @ mine, "sum", dist.group.WORLD)
    return mine / (total / len(mine) / world_size).sqrt()


# %% right: mean of means
def normed(mine, world_size):
    square = mine.pow(2).mean(dim=0, keepdim=True)
    dist.all_reduce(square, dist.ReduceOp.SUM)
    return mine * torch.rsqrt(square / world_size)
