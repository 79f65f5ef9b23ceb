def step_time(seconds, leaves, micro, alpha, beta):
    end = 0.0
    for place, size in enumerate(leaves, 1):
        if size:
            done = [
                sum(row) * (3 * micro - 2) + 2 * sum(row[-place:]) for row in seconds
            ]
            end = max(end, max(done)) + alpha + beta * size
    return max(end, *(3 * micro * sum(row) for row in seconds))
