def copies(row, rank, world_size):
    pieces = list(row.expand(world_size, -1).clone()) if not rank else []
    dist.scatter(got := torch.zeros_like(row), scatter_list=pieces)
    return got
