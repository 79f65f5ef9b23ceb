def rebuild(order, sizes, cap, device):
    buckets, held = [], cap
    for weight in order:
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets
