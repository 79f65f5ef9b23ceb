def bus(size, mine, n):
    clocks = [torch.empty_like(mine) for _ in range(n)]
    dist.all_gather(clocks, mine)
    return 2 * (n - 1) / n * size / max(clocks)
