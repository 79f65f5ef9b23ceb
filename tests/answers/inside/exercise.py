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


# %% right: functional
import torch.distributed._functional_collectives as funcol


class Packed:
    def __init__(self, tensors):
        self.tensors = tensors
        self.rows = [t.reshape(-1).contiguous().view(torch.uint8) for t in tensors]

    def unpack(self, row):
        for tensor, piece in zip(
            self.tensors, row.split([len(each) for each in self.rows]), strict=True
        ):
            values = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            values.view(-1).view(torch.uint8).copy_(piece)
            tensor.copy_(values)


def share(tensors):
    packed = Packed(tensors)
    row = funcol.broadcast(torch.cat(packed.rows), 0, dist.group.WORLD)
    packed.unpack(row)
    return True


# %% right: sorted by type
def share(tensors):
    kinds = {
        t.dtype: [each for each in tensors if each.dtype == t.dtype] for t in tensors
    }
    flats = [torch.cat([t.flatten() for t in kinds[kind]]) for kind in kinds]
    row = torch.hstack([flat.view(torch.uint8) for flat in flats])
    dist.broadcast(tensor=row, src=0, async_op=True).wait()
    for flat in flats:
        flat.view(torch.uint8).copy_(row[: flat.nbytes])
        row = row[flat.nbytes :]
    for same, flat in zip(kinds.values(), flats, strict=True):
        for tensor in same:
            tensor.copy_(flat[: tensor.numel()].view(tensor.shape))
            flat = flat[tensor.numel() :]
    return True


# %% right: zeros but for rank 0
def share(tensors):
    rows = [t.contiguous().view(-1).view(torch.uint8) for t in tensors]
    row = torch.cat(rows) * (dist.get_rank() == 0)
    dist.all_reduce(row, op=dist.ReduceOp.MAX)
    at = 0
    for tensor in tensors:
        piece = row[at : at + tensor.nbytes].clone()
        tensor.copy_(piece.view(tensor.dtype).view(tensor.shape))
        at += tensor.nbytes
    return True
