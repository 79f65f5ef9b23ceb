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


# %% right: a generator
from collections import deque
from itertools import islice


def steps(rank, p, m):
    todo, owed = iter(range(m)), deque()
    for i in islice(todo, p - 1 - rank):
        yield "F", i
    for i in range(m):
        for ahead in islice(todo, 1):
            yield "F", ahead
        yield "I", i
        owed.append(i)
        if len(owed) > rank:
            yield "W", owed.popleft()
    for i in owed:
        yield "W", i


def row(rank, p, m):
    return list(steps(rank, p, m))


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


# %% right: groups joined
def row(rank, p, m):
    first = min(p - 1 - rank, m)
    groups = [[["F", i]] for i in range(first)]
    for i in range(m + rank):
        group = [["F", first + i], ["I", i], ["W", i - rank]]
        groups.append([[what, k] for what, k in group if 0 <= k < m])
    return sum(groups, [])
