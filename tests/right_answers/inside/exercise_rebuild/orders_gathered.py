def rebuild(order, sizes, cap, device):
    orders = [None] * dist.get_world_size()
    dist.all_gather_object(orders, order)
    left, buckets = orders[0][:], []
    while left:
        count, held = 0, 0
        while count < len(left) and held < cap:
            held += sizes[left[count]]
            count += 1
        buckets.append(left[:count])
        del left[:count]
    return buckets
