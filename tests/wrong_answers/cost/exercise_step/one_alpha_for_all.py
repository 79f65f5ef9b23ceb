def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [(3 * micro - 2) * sum(row) for row in seconds], 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=True):
        clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=True)]
        if size:
            wire = max(*clocks, wire) + beta * size
    return max(*clocks, wire + alpha)
