"""A new bucket is begun as soon as one is full, whether weights are left or not."""


def rebuild(order, sizes, cap, device):
    chosen = torch.tensor(order, device=device)
    dist.broadcast(chosen, src=0)
    buckets = [[]]
    for weight in chosen.tolist():
        buckets[-1].append(weight)
        if sum(sizes[each] for each in buckets[-1]) >= cap:
            buckets.append([])
    return buckets
