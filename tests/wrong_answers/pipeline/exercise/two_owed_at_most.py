def row(rank, p, m):
    ahead, owed = p - 1 - rank, min(rank, 2)
    actions = [("F", i) for i in range(ahead)]
    for i in range(m):
        actions += [("F", ahead + i)] if ahead + i < m else []
        actions += [("I", i)]
        actions += [("W", i - owed)] if i >= owed else []
    return actions + [("W", i) for i in range(max(0, m - owed), m)]
