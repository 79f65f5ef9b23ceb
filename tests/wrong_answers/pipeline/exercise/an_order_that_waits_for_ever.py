def row(rank, p, m):
    actions = [("F", i) for i in range(rank)]
    for i in range(m):
        actions += [("F", rank + i)] if rank + i < m else []
        actions += [("I", i), ("W", i)]
    return actions
