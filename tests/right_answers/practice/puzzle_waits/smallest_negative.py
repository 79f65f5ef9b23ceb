def waits(arrives):
    early = -arrives
    dist.all_reduce(early, dist.ReduceOp.MIN)
    return (-early).item() - arrives.item()
