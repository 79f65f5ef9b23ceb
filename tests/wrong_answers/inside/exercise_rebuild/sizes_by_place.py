import torch
import torch.distributed as dist


def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=0)
    buckets, held = [], cap
    for weight, size in zip(shared.tolist(), sizes, strict=True):
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += size
    return buckets
