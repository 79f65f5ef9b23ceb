def goes_to(rank, step):
    distance = step + 1
    return rank - distance if rank % (2 * distance) == distance else None
