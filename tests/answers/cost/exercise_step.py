# %% wrong: buckets do not wait for each other
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(3 * micro - 2) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=False):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=False)]
        if size:
            wire = max(wire, max(clocks) + alpha + beta * size)
    return max(*clocks, wire)


# %% wrong: nothing overlaps
def step_time(seconds, leaves, micro, alpha, beta):
    slowest = max(sum(row) for row in seconds)
    return 3 * micro * slowest + sum(alpha + beta * size for size in leaves if size)


# %% right: each bucket alone
def step_time(seconds, leaves, micro, alpha, beta):
    end = 0.0
    for place, size in enumerate(leaves, 1):
        if size:
            done = [
                sum(row) * (3 * micro - 2) + 2 * sum(row[-place:]) for row in seconds
            ]
            end = max(end, max(done)) + alpha + beta * size
    return max(end, *(3 * micro * sum(row) for row in seconds))
