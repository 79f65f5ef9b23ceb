def waits(arrives):
    times = [torch.empty_like(arrives) for _ in range(dist.get_world_size())]
    dist.all_gather(times, arrives)
    return max(times) - arrives
