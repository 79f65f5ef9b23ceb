def estimate(road, world_size, blocks, width, hidden, rows):
    """Forgets that backward gathers the weights again."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    activation = 4 * rows * width
    if road == "ddp":
        return ring * weights
    if road == "sharded":
        return 1.5 * ring * weights
    return (2 * blocks - 1) * ring * activation
