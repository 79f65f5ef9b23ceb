import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.flatten().double() for t in tensors])
    row *= dist.get_rank() == 0
    dist.all_reduce(row)
    at = 0
    for tensor in tensors:
        tensor.copy_(row[at : at + tensor.numel()].view(tensor.shape))
        at += tensor.numel()
    return True
