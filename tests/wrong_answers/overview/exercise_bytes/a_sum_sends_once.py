def estimate(road, world_size, blocks, width, hidden, rows):
    """As if all_reduce were reduce_scatter alone."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    activation = 4 * rows * width
    if road == "ddp":
        return (world_size - 1) / world_size * weights
    if road == "sharded":
        return 2 * ring * weights
    return (2 * blocks - 1) * ring * activation
