# %% wrong: everybody sends
import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.contiguous().view(-1).view(torch.uint8) for t in tensors])
    rows = torch.empty(dist.get_world_size() * len(row), dtype=row.dtype).to(row.device)
    dist.all_gather_into_tensor(rows, row)
    at = 0
    for tensor in tensors:
        piece = rows[at : at + tensor.nbytes].clone()
        tensor.copy_(piece.view(tensor.dtype).view(tensor.shape))
        at += tensor.nbytes
    return True


# %% wrong: never unpacked
import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.contiguous().flatten().view(torch.uint8) for t in tensors])
    dist.broadcast(row, src=0)
    return True


# %% wrong: one for each tensor
import torch.distributed as dist


def share(tensors):
    for tensor in tensors:
        copy = tensor.contiguous()
        dist.broadcast(copy, src=0)
        tensor.copy_(copy)
    return True


# %% wrong: unpacked in another order
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


# %% right: a buffer of bytes
def share(tensors):
    row = torch.empty(sum(t.nbytes for t in tensors), dtype=torch.uint8)
    row = row.to(tensors[0].device)
    at = 0
    for tensor in tensors:
        row[at : at + tensor.nbytes] = tensor.contiguous().view(-1).view(torch.uint8)
        at += tensor.nbytes
    dist.broadcast(row, src=0)
    at = 0
    for tensor in tensors:
        values = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        values.view(-1).view(torch.uint8).copy_(row[at : at + tensor.nbytes])
        tensor.copy_(values)
        at += tensor.nbytes
    return True


# %% wrong: zeros and a sum
import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.contiguous().flatten().view(torch.uint8) for t in tensors])
    if dist.get_rank():
        row.zero_()
    dist.all_reduce(row)  # sends twice what a broadcast does
    at = 0
    for tensor in tensors:
        piece = row[at : at + tensor.nbytes].clone()
        tensor.copy_(piece.view(tensor.dtype).view(tensor.shape))
        at += tensor.nbytes
    return True
