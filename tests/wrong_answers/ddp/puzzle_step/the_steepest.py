def step(weight, grad, rate, world_size):
    dist.all_reduce(grad, op=dist.ReduceOp.MAX)
    return weight - rate * grad
