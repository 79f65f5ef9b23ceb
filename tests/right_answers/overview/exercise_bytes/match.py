def estimate(road, world_size, blocks, width, hidden, rows):
    sent = 8 * (world_size - 1) / world_size
    match road:
        case "tensor":
            return sent * rows * width * (2 * blocks - 1)
        case "ddp" | "sharded":
            once = sent * blocks * (hidden * (2 * width + 1) + width)
            return once * (2 if road == "sharded" else 1)
