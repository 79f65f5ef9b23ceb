def waits(arrives):
    total = arrives.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size() - arrives
