import torch
import torch.distributed as dist


def mean(grad):
    total = torch.zeros(1) if grad is None else grad.clone()
    count = torch.ones(1) if grad is not None else torch.zeros(1)
    dist.all_reduce(total)
    dist.all_reduce(count)
    return total / count
