import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.contiguous().flatten().view(torch.uint8) for t in tensors])
    dist.broadcast(row, src=0)
    return True
