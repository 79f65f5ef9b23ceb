def waits(arrives):
    first = arrives.clone()
    dist.all_reduce(first, op=dist.ReduceOp.MIN)
    return arrives - first
