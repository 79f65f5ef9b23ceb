def normed(mine, world_size):
    features = mine.new_empty(world_size * mine.numel())
    dist.all_gather_into_tensor(features, mine)
    return mine / (features**2).mean() ** 0.5
