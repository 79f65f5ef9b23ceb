def batch_statistics(x):
    x = x.double()
    sums = torch.stack([x, x * x]).sum(dim=1)
    dist.all_reduce(sums)
    mean, squares = sums / (len(x) * dist.get_world_size())
    return mean, squares - mean**2
