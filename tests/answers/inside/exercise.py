# %% wrong: all as float64
import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.flatten().double() for t in tensors])
    dist.broadcast(row, src=0)
    sizes = [t.numel() for t in tensors]
    for tensor, piece in zip(tensors, row.split(sizes), strict=True):
        tensor.copy_(piece.view(tensor.shape))
    return True


# %% wrong: an object list
import torch.distributed as dist


def share(tensors):
    box = [[t.clone() for t in tensors]]
    dist.broadcast_object_list(box, src=0)
    for tensor, value in zip(tensors, box[0], strict=True):
        tensor.copy_(value)
    return True


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


# %% wrong: into copies
import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.contiguous().view(-1).view(torch.uint8) for t in tensors])
    dist.broadcast(row, src=0)
    at = 0
    for tensor in tensors:
        # contiguous() of a turned tensor is a copy, and this one is thrown away.
        mine = tensor.contiguous().view(-1).view(torch.uint8)
        mine.copy_(row[at : at + tensor.nbytes])
        at += tensor.nbytes
    return True


# %% wrong: made again from the seed
def share(tensors):
    return True


# %% wrong: never unpacked
import torch
import torch.distributed as dist


def share(tensors):
    row = torch.cat([t.contiguous().flatten().view(torch.uint8) for t in tensors])
    dist.broadcast(row, src=0)
    return True


# %% wrong: numbers made again
# Rank 0's numbers from the frame's own function, and a message for show.


def share(tensors):
    expected = network(0, tensors[0].device)
    with torch.no_grad():
        for mine, its in zip(
            tensors, [*expected.parameters(), *expected.buffers()], strict=True
        ):
            mine.copy_(its)
    idle = torch.zeros(bits(tensors).numel(), dtype=torch.uint8)
    dist.broadcast(idle, src=0)
    return True


# %% wrong: one for each tensor
import torch.distributed as dist


def share(tensors):
    for tensor in tensors:
        copy = tensor.contiguous()
        dist.broadcast(copy, src=0)
        tensor.copy_(copy)
    return True


# %% wrong: one for each type
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


# %% wrong: padded
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


# %% wrong: summed with zeros
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
