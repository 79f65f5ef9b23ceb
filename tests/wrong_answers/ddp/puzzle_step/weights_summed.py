def step(weight, grad, rate, world_size):
    weight = weight - rate * grad
    dist.all_reduce(weight)
    return weight
