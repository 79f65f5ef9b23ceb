def step(weight, grad, rate, world_size):
    dist.all_reduce(grad.clone())
    return weight - rate * grad
