def variance(mine):
    sums = torch.stack([mine.sum(), mine.square().sum()])
    dist.all_reduce(sums)
    total, squares = sums / (len(mine) * dist.get_world_size())
    return squares - total**2
