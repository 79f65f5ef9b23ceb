import torch
import torch.distributed as dist


def share(tensors):
    pieces = [t.contiguous().flatten().view(torch.uint8) for t in tensors]
    pieces = [torch.nn.functional.pad(p, (0, -len(p) % 8)) for p in pieces]
    row = torch.cat(pieces)
    dist.broadcast(row, src=0)
    for tensor, piece in zip(tensors, row.split([len(p) for p in pieces]), strict=True):
        value = piece[: tensor.nbytes].view(tensor.dtype)
        tensor.copy_(value.view(tensor.shape))
    return True
