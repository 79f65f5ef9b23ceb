def step_time(seconds, leaves, micro, alpha, beta):
    computing = 3 * micro * max(sum(row) for row in seconds)
    return max(computing, sum(alpha + beta * size for size in leaves if size))
