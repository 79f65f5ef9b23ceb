import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.flatten().double() for t in tensors])
    dist.broadcast(row, src=0)
    sizes = [t.numel() for t in tensors]
    for tensor, piece in zip(tensors, row.split(sizes), strict=True):
        tensor.copy_(piece.view(tensor.shape))
    return True
