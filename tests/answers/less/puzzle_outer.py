# %% wrong: backwards
def outer(common, mine, rate, world_size):
    step = (common - mine) / world_size
    dist.all_reduce(step)
    return common + rate * step


# %% wrong: the plain mean
def outer(common, mine, rate, world_size):
    dist.all_reduce(mine)
    return mine / world_size


# %% right: a weighted mean
def outer(common, mine, rate, world_size):
    mean = mine / world_size
    dist.all_reduce(mean)
    return (1 - rate) * common + rate * mean


# %% right: by lerp
def outer(common, mine, rate, world_size):
    mean = mine.clone()
    dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    return torch.lerp(common, mean.div_(world_size), rate)


# %% right: functional
import torch.distributed._functional_collectives as funcol


def outer(common, mine, rate, world_size):
    total = funcol.all_reduce(mine, "sum", dist.group.WORLD)
    return (1 - rate) * common + rate * total / world_size
