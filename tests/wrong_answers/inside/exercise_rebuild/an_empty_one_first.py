import torch
import torch.distributed as dist


def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=0)
    buckets, held = [[]], cap
    for weight in shared.tolist():
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets
