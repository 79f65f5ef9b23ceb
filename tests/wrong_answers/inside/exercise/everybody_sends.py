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
