def median(mine):
    count = torch.tensor(len(mine), device=mine.device)
    dist.all_reduce(count)
    low, high = 0, TOP - 1
    for _ in range(10):
        middle = (low + high) / 2
        total = (mine <= middle).sum()
        dist.all_reduce(total)
        low, high = (low, middle) if 2 * total >= count else (middle, high)
    return round((low + high) / 2)
