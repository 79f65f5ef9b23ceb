def estimate(road, world_size, blocks, width, hidden, rows):
    """No arithmetic: the step is made, and its bytes are counted."""
    mesh = init_device_mesh("cpu", (world_size,))
    return count(road, mesh, blocks, width, hidden, rows)
