# %% wrong: all forwards first
def row(rank, p, m):
    return [(what, i) for what in "FIW" for i in range(m)]


# %% wrong: an order that waits forever
def row(rank, p, m):
    actions = [("F", i) for i in range(rank)]
    for i in range(m):
        actions += [("F", rank + i)] if rank + i < m else []
        actions += [("I", i), ("W", i)]
    return actions


# %% wrong: w at the end
def row(rank, p, m):
    ahead = p - 1 - rank
    actions = [("F", i) for i in range(ahead)]
    for i in range(m):
        actions += [("F", ahead + i)] if ahead + i < m else []
        actions += [("I", i)]
    return actions + [("W", i) for i in range(m)]


# %% wrong: w left out
def row(rank, p, m):
    ahead = p - 1 - rank
    actions = [("F", i) for i in range(ahead)]
    for i in range(m):
        actions += [("F", ahead + i)] if ahead + i < m else []
        actions += [("I", i)]
    return actions


# %% wrong: never more than four owed
def row(rank, p, m):
    ahead, owed = min(p - 1 - rank, m), min(rank, 4)
    actions = [("F", i) for i in range(ahead)]
    for i in range(m):
        actions += [("F", ahead + i)] if ahead + i < m else []
        actions += [("I", i)]
        actions += [("W", i - owed)] if i >= owed else []
    return actions + [("W", i) for i in range(max(0, m - owed), m)]


# %% right: as the clock goes
def row(rank, p, m):
    at, counts = [], {"F": 0, "I": 0, "W": 0}

    def do(what):
        at.append((what, counts[what]))
        counts[what] += 1

    while counts["W"] < m:
        ahead, owed = counts["F"] - counts["I"], counts["I"] - counts["W"]
        if owed > rank:
            do("W")
        elif counts["F"] < m and ahead < p - rank:
            do("F")
        elif counts["I"] < m:
            do("I")
        else:
            do("W")
    return at
