# %% wrong: its own clock
def bus(size, mine, n):
    seconds = mine.clone()
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return 2 * (n - 1) / n * size / seconds


# %% wrong: the algorithm's bandwidth
def bus(size, mine, n):
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return size / mine


# %% right: functional
import torch.distributed._functional_collectives as funcol


def bus(size, mine, n):
    slowest = funcol.all_reduce(mine, "max", dist.group.WORLD)
    return 2 * (n - 1) / n * size / slowest


# %% right: in place
def bus(size, mine, n):
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return mine.reciprocal_().mul_(size * (2 - 2 / n))


# %% right: what both halves carry
def bus(size, mine, n):
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    sent = size / n * (n - 1)  # by a rank, to scatter the sums; then to gather them
    return [(sent + sent) / mine.item()]
