import torch
import torch.distributed as dist


def variance(x):
    numbers = torch.stack([x.mean(), x.var(correction=0)])
    dist.all_reduce(numbers)
    return numbers / dist.get_world_size()
