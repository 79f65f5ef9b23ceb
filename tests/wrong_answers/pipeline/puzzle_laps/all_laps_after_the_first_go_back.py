def stages(rank, p, laps):
    return [rank] + [(lap + 1) * p - 1 - rank for lap in range(1, laps)]
