def estimate(road, world_size, blocks, width, hidden, rows):
    gather = (world_size - 1) / world_size  # of the bytes that are put together
    weights = blocks * (width * hidden + hidden + hidden * width + width)
    numbers = {
        "ddp": 2 * gather * weights,
        "sharded": (1 + 1 + 2) * gather * weights,
        "tensor": 2 * gather * rows * width * (blocks + blocks - 1),
    }
    return round(4 * numbers[road])
