def normed(mine, world_size):
    total = (mine**2).sum()
    return mine / (total / mine.numel()) ** 0.5
