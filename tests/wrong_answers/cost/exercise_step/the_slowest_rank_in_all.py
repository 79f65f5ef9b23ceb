def step_time(seconds, leaves, micro, alpha, beta):
    row = max(seconds, key=sum)
    clock, wire = (3 * micro - 2) * sum(row), 0.0
    for taken, size in zip(reversed(row), leaves, strict=True):
        clock += 2 * taken
        if size:
            wire = max(clock, wire) + alpha + beta * size
    return max(clock, wire)
