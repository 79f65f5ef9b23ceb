def step(weight, grad, rate, world_size):
    dist.reduce(grad, dst=0)
    return weight - rate * grad / world_size
