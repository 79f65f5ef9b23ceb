def waits(arrives):
    latest = arrives
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    return latest - arrives
