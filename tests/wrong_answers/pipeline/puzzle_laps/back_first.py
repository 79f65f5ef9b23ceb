def stages(rank, p, laps):
    return [lap * p + (rank if lap % 2 else p - 1 - rank) for lap in range(laps)]
