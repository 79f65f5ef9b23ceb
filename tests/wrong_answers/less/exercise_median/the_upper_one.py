def median(mine):
    everyone = torch.tensor(len(mine), device=mine.device)
    dist.all_reduce(everyone)
    low, high = 0, TOP - 1
    while low < high:
        middle = (low + high) // 2
        total = (mine <= middle).sum()
        dist.all_reduce(total)
        low, high = (low, middle) if 2 * total > everyone else (middle + 1, high)
    return low
