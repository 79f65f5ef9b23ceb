def stages(rank, p, laps):
    return [rank * laps + lap for lap in range(laps)]
