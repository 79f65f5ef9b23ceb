def step_time(seconds, leaves, micro, alpha, beta):
    clock, wire = (3 * micro - 2) * sum(seconds[0]), 0.0
    for layer, size in zip(reversed(range(len(leaves))), leaves, strict=False):
        clock += 2 * seconds[0][layer]
        if size:
            wire = max(clock, wire) + alpha + beta * size
    return max(clock, wire)
