def estimate(road, world_size, blocks, width, hidden, rows):
    """As if each tensor travelled once."""
    if road == "tensor":
        return 4 * rows * width
    return 4 * blocks * (2 * width * hidden + width + hidden)
