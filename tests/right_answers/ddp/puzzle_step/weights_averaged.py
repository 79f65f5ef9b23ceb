def step(weight, grad, rate, world_size):
    stepped = weight.sub(grad, alpha=rate) / world_size
    dist.all_reduce(stepped, op=dist.ReduceOp.SUM)
    return stepped
