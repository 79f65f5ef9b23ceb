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
