def ticks(rank, stages, m):
    return [f"F{i}" for i in range(m)] + [f"B{i}" for i in reversed(range(m))]
