import torch
import torch.distributed as dist


def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=0)
    return shared.view(-1, 2).tolist()
