def estimate(road, world_size, blocks, width, hidden, rows):
    """reduce_scatter is half of a sum: over NCCL, but not over gloo."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    if road == "tensor":
        return (2 * blocks - 1) * ring * 4 * rows * width
    return (1.5 if road == "sharded" else 1) * ring * weights
