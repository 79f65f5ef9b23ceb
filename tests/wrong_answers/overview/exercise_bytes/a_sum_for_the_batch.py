def estimate(road, world_size, blocks, width, hidden, rows):
    """Sums a gradient for the batch, which nobody needs."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    activation = 4 * rows * width
    if road == "ddp":
        return ring * weights
    if road == "sharded":
        return 2 * ring * weights
    return 2 * blocks * ring * activation
