import torch
import torch.distributed as dist


def variance(x):
    sums = torch.stack([x.sum(), x.square().sum(), torch.ones_like(x).sum()])
    dist.all_reduce(sums)
    mean = sums[0] / sums[2]
    return torch.stack([mean, (sums[1] - sums[2] * mean.square()) / (sums[2] - 1)])
