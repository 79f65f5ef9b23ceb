def rebuild(order, sizes, cap, device):
    buckets, held = [[]], 0
    for weight in order:
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    box = [buckets]
    dist.broadcast_object_list(box, src=0, device=device)
    return box[0]
