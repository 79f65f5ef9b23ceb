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
