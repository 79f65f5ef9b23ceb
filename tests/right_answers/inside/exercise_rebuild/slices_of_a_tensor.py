def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=0)
    buckets, begin, held = [], 0, 0
    for end, weight in enumerate(shared.tolist(), 1):
        held += sizes[weight]
        if held >= cap or end == len(order):
            buckets.append(shared[begin:end])
            begin, held = end, 0
    return buckets
