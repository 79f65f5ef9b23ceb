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
