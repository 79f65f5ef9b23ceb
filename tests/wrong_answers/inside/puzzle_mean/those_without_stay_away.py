import torch
import torch.distributed as dist


def mean(grad):
    if grad is None:
        return torch.zeros(1)
    pair = torch.stack([grad[0], torch.ones(())])
    dist.all_reduce(pair)
    return pair[0] / pair[1]
