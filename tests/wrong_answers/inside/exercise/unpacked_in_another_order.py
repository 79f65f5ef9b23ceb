import torch
import torch.distributed as dist


def share(tensors):
    pieces = [t.contiguous().flatten().view(torch.uint8) for t in reversed(tensors)]
    row = torch.cat(pieces)
    dist.broadcast(row, src=0)
    at = 0
    for tensor in tensors:
        piece = row[at : at + tensor.nbytes].clone()
        tensor.copy_(piece.view(tensor.dtype).view(tensor.shape))
        at += tensor.nbytes
    return True
