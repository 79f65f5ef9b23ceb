"""One all_reduce, but of all features: this gathers them."""


def normed(mine, world_size):
    every = torch.zeros(world_size, 2, dtype=mine.dtype)
    every[dist.get_rank()] = mine
    dist.all_reduce(every)
    return mine / every.pow(2).mean().sqrt()
