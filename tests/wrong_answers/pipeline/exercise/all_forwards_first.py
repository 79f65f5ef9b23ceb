def row(rank, p, m):
    return [(what, i) for what in "FIW" for i in range(m)]
