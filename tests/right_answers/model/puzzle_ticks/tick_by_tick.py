def ticks(rank, stages, m):
    half, row = m + stages - 1, []
    for tick in range(2 * half):
        i = (tick if tick < half else 2 * half - 1 - tick) - rank
        row.append(f"{'F' if tick < half else 'B'}{i}" if 0 <= i < m else "idle")
    return row
