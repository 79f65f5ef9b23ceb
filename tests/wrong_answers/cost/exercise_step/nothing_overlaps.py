def step_time(seconds, leaves, micro, alpha, beta):
    slowest = max(sum(row) for row in seconds)
    return 3 * micro * slowest + sum(alpha + beta * size for size in leaves if size)
