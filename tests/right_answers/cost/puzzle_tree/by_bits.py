def goes_to(rank, step):
    lowest = rank & -rank
    return rank ^ lowest if lowest == 1 << step else None
