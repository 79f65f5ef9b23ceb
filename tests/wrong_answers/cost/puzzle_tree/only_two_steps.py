def goes_to(rank, step):
    return [{1: 0, 3: 2}, {2: 0}][step % 2].get(rank)
