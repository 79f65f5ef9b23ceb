def stages(rank, p, laps):
    return [rank + lap * p for lap in range(laps)]
