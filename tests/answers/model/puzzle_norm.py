# %% wrong: everything gathered
def normed(mine, world_size):
    features = mine.new_empty(world_size * mine.numel())
    dist.all_gather_into_tensor(features, mine)
    return mine / (features**2).mean() ** 0.5


# %% wrong: its own features
def normed(mine, world_size):
    total = (mine**2).sum()
    return mine / (total / mine.numel()) ** 0.5


# %% right: mean of means
def normed(mine, world_size):
    square = mine.pow(2).mean(dim=0, keepdim=True)
    dist.all_reduce(square, dist.ReduceOp.SUM)
    return mine * torch.rsqrt(square / world_size)
