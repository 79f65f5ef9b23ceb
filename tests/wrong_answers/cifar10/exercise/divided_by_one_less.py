def batch_statistics(x):
    x = x.double()
    sums = torch.stack([torch.ones_like(x), x, x * x]).sum(dim=1)
    dist.all_reduce(sums)
    count, total, squares = sums
    mean = total / count
    return mean, (squares - count * mean**2) / (count - 1)
