import torch
import torch.distributed as dist


def share(tensors):
    for dtype in {t.dtype: None for t in tensors}:
        mine = [t for t in tensors if t.dtype == dtype]
        row = torch.cat([t.flatten() for t in mine])
        dist.broadcast(row, src=0)
        sizes = [t.numel() for t in mine]
        for tensor, piece in zip(mine, row.split(sizes), strict=True):
            tensor.copy_(piece.view(tensor.shape))
    return True
