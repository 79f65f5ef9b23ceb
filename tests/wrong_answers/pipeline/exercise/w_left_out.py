def row(rank, p, m):
    ahead = p - 1 - rank
    actions = [("F", i) for i in range(ahead)]
    for i in range(m):
        actions += [("F", ahead + i)] if ahead + i < m else []
        actions += [("I", i)]
    return actions
