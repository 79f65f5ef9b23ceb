import torch
import torch.distributed as dist


def mean(grad):
    pair = torch.stack([grad[0], torch.ones(())]) if grad else torch.zeros(2)
    dist.all_reduce(pair)
    return pair[0] / pair[1]
