def most_blocks(budget, way, sizes, world_size):
    mesh = dist.init_device_mesh("cpu", (world_size,))
    n = 1
    while n < 7 and take_step(n + 1, way, mesh)[0] <= budget:
        n += 1
    return n
