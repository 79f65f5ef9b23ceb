def row(rank, p, m):
    first = min(p - 1 - rank, m)
    groups = [[["F", i]] for i in range(first)]
    for i in range(m + rank):
        group = [["F", first + i], ["I", i], ["W", i - rank]]
        groups.append([[what, k] for what, k in group if 0 <= k < m])
    return sum(groups, [])
