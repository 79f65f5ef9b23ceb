def step(weight, grad, rate, world_size):
    dist.all_reduce(grad)
    return weight + rate * grad / world_size
