def median(mine):
    low, high, everyone = 0, TOP - 1, len(mine) * dist.get_world_size()
    for _ in range(10):
        middle = (low + high) // 2
        total = (mine <= middle).sum()
        dist.all_reduce(total)
        low, high = (low, middle) if 2 * total >= everyone else (middle + 1, high)
    return low
