"""Hints for ddp_lab/inside/exercise.py, and an answer.

1. What do numbers of all types have in common, seen from a cable?
2. A contiguous tensor can be viewed as bytes: flatten it, then .view(torch.uint8).
   torch.cat makes one row of them all, and dist.broadcast sends it.
3. Take the row apart with split(), by the nbytes of each tensor. View a clone() of each
   piece with the tensor's dtype, then with its shape, and copy_() it into the tensor.
   (A view of another type must begin at a multiple of its size, as a clone does.)
"""

import torch
import torch.distributed as dist


def share(tensors):
    pieces = [t.contiguous().flatten().view(torch.uint8) for t in tensors]
    row = torch.cat(pieces)
    dist.broadcast(row, src=0)  # every rank now holds rank 0's bytes
    sizes = [piece.numel() for piece in pieces]
    for tensor, piece in zip(tensors, row.split(sizes), strict=True):
        # A view of another type has to begin at a multiple of its size: hence clone().
        tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))
    return True
