def estimate(road, world_size, blocks, width, hidden, rows):
    weights = blocks * (2 * width * hidden + hidden + width)
    sent = torch.tensor(8 * (1 - 1 / world_size))
    if road == "tensor":
        return sent * rows * width * (2 * blocks - 1)
    return sent * weights * (2 if road == "sharded" else 1)
