import torch
import torch.distributed as dist


def rebuild(order, sizes, cap, device):
    places = torch.tensor([order.index(w) for w in range(len(sizes))], device=device)
    dist.all_reduce(places)
    shared = places.argsort(stable=True).tolist()
    buckets, held = [], cap
    for weight in shared:
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets
