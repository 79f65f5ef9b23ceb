def ticks(rank, stages, m):
    does = {rank + i: f"F{i}" for i in range(m)}
    end = 2 * (m + stages - 1)
    does |= {end - 1 - rank - i: f"B{i}" for i in range(m)}
    return tuple(does.get(tick, "idle") for tick in range(end))
