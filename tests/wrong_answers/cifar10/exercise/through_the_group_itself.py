def batch_statistics(x):
    x = x.double()
    group = dist.distributed_c10d._get_default_group()
    sums = torch.stack([torch.ones_like(x), x]).sum(dim=1)
    group.allreduce([sums]).wait()
    mean = sums[1] / sums[0]
    squares = ((x - mean) ** 2).sum(dim=0)
    group.allreduce([squares]).wait()
    return mean, squares / sums[0]
