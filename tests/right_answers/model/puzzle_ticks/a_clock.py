def ticks(rank, stages, m):
    end = 2 * (m + stages - 1)
    row = []
    for t in range(end):
        ahead, back = t - rank, end - 1 - t - rank
        row.append(
            f"F{ahead}" if 0 <= ahead < m else f"B{back}" if 0 <= back < m else "idle"
        )
    return row
