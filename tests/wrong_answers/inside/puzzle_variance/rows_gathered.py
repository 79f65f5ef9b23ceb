def variance(x):
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, x)
    every = torch.cat(rows)
    return [every.mean(), every.var(correction=0)]
