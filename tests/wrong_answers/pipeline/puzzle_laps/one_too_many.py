def stages(rank, p, laps):
    return [lap * p + (p - rank if lap % 2 else rank) for lap in range(laps)]
