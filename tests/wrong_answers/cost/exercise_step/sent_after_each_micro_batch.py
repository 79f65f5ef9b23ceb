def step_time(seconds, leaves, micro, alpha, beta):
    clocks, wire = [0.0] * len(seconds), 0.0
    for _ in range(micro):
        clocks = [max(c, wire) + sum(row) for c, row in zip(clocks, seconds, strict=False)]
        for layer, size in zip(reversed(range(len(leaves))), leaves, strict=False):
            clocks = [c + 2 * row[layer] for c, row in zip(clocks, seconds, strict=False)]
            if size:
                wire = max(*clocks, wire) + alpha + beta * size
    return max(*clocks, wire)
