def batch_statistics(x):
    x = x.double()
    both = torch.stack([x.mean(dim=0), x.var(dim=0, correction=0)])
    dist.all_reduce(both)
    return both / dist.get_world_size()
