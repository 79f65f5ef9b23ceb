def estimate(road, world_size, blocks, width, hidden, rows):
    """Sums what is between the Linears, not what comes out of the block."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    if road == "tensor":
        return ring * (2 * blocks - 1) * 4 * rows * hidden
    return ring * weights * (2 if road == "sharded" else 1)
