def rebuild(order, sizes, cap, device):
    box = [order]
    dist.broadcast_object_list(box, src=0, device=device)
    buckets, current = [], []
    for weight in box[0]:
        current.append(weight)
        if sum(sizes[each] for each in current) >= cap:
            buckets.append(current)
            current = []
    return buckets + [current] * bool(current)
