def estimate(road, world_size, blocks, width, hidden, rows):
    """Tensor sums back through the first block as well, where nobody needs it."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    if road == "tensor":
        return 2 * blocks * ring * 4 * rows * width
    return (2 if road == "sharded" else 1) * ring * weights
