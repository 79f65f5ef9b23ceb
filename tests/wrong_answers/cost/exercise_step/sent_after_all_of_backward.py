def step_time(seconds, leaves, micro, alpha, beta):
    ends = [3 * micro * sum(row) for row in seconds]
    return max(ends) + alpha * sum(size > 0 for size in leaves) + beta * sum(leaves)
