def coming(going):
    dist.all_reduce(going)
    return going
