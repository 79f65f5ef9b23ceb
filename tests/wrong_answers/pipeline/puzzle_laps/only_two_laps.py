def stages(rank, p, laps):
    return [rank, 2 * p - 1 - rank]
