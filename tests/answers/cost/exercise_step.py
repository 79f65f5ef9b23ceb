# %% wrong: a forward is left out
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [3 * (micro - 1) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=True):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=True)]
        if size:
            wire = max(*clocks, wire) + alpha + beta * size
    return max(*clocks, wire)


# %% wrong: all is hidden
def step_time(seconds, leaves, micro, alpha, beta):
    computing = 3 * micro * max(sum(row) for row in seconds)
    return max(computing, sum(alpha + beta * size for size in leaves if size))


# %% wrong: an alpha for each layer
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(3 * micro - 2) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=False):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=False)]
        wire = max(*clocks, wire) + alpha + beta * size
    return max(*clocks, wire)


# %% wrong: backward as long as forward
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(2 * micro - 1) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=True):
        clocks = [c + row[layer] for c, row in zip(clocks, seconds, strict=True)]
        if size:
            wire = max(*clocks, wire) + alpha + beta * size
    return max(*clocks, wire)


# %% wrong: buckets do not wait for each other
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(3 * micro - 2) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=False):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=False)]
        if size:
            wire = max(wire, max(clocks) + alpha + beta * size)
    return max(*clocks, wire)


# %% wrong: bytes without alpha
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(3 * micro - 2) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=True):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=True)]
        if size:
            wire = max(*clocks, wire) + beta * size
    return max(*clocks, wire)


# %% wrong: nothing overlaps
def step_time(seconds, leaves, micro, alpha, beta):
    slowest = max(sum(row) for row in seconds)
    return 3 * micro * slowest + sum(alpha + beta * size for size in leaves if size)


# %% wrong: one alpha for all
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(3 * micro - 2) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=True):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=True)]
        if size:
            wire = max(*clocks, wire) + beta * size
    return max(*clocks, wire + alpha)


# %% wrong: sent after all of backward
def step_time(seconds, leaves, micro, alpha, beta):
    ends = [3 * micro * sum(row) for row in seconds]
    return max(ends) + alpha * sum(size > 0 for size in leaves) + beta * sum(leaves)


# %% wrong: sent after each micro batch
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [0.0] * len(seconds), 0.0
    for _ in range(micro):
        both = list(zip(clocks, seconds, strict=True))
        clocks = [max(c, wire) + sum(row) for c, row in both]
        for layer, size in zip(reversed(range(len(leaves))), leaves, strict=False):
            both = list(zip(clocks, seconds, strict=True))
            clocks = [c + 2 * row[layer] for c, row in both]
            if size:
                wire = max(*clocks, wire) + alpha + beta * size
    return max(*clocks, wire)


# %% wrong: the first layer first
def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(3 * micro - 2) * sum(row) for row in seconds], 0.0
    for layer, size in enumerate(leaves):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=False)]
        if size:
            wire = max(*clocks, wire) + alpha + beta * size
    return max(*clocks, wire)


# %% wrong: the first rank only
def step_time(seconds, leaves, micro, alpha, beta):
    clock, wire = (3 * micro - 2) * sum(seconds[0]), 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=False):
        clock += 2 * seconds[0][layer]
        if size:
            wire = max(clock, wire) + alpha + beta * size
    return max(clock, wire)


# %% wrong: the slowest rank in all
def step_time(seconds, leaves, micro, alpha, beta):
    row = max(seconds, key=sum)
    clock, wire = (3 * micro - 2) * sum(row), 0.0
    for taken, size in zip(reversed(row), leaves, strict=True):
        clock += 2 * taken
        if size:
            wire = max(clock, wire) + alpha + beta * size
    return max(clock, wire)


# %% wrong: the slowest rank of each layer
def step_time(seconds, leaves, micro, alpha, beta):
    row = [max(layer) for layer in zip(*seconds, strict=False)]
    clock, wire = (3 * micro - 2) * sum(row), 0.0
    for taken, size in zip(reversed(row), leaves, strict=False):
        clock += 2 * taken
        if size:
            wire = max(clock, wire) + alpha + beta * size
    return max(clock, wire)


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


# %% right: from the end
def step_time(seconds, leaves, micro, alpha, beta):
    """Each bucket says when all would be over if it were the last that had to wait."""
    end = max(3 * micro * sum(row) for row in seconds)
    behind, total = 0.0, [sum(row) for row in seconds]
    for layer in range(len(leaves)):  # the last bucket first
        size = leaves[len(leaves) - 1 - layer]
        if size:
            behind += alpha + beta * size
            ready = [
                3 * micro * whole - 2 * sum(row[:layer])
                for whole, row in zip(total, seconds, strict=True)
            ]
            end = max(end, max(ready) + behind)
    return end
