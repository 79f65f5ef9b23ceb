def goes_to(rank, step):
    place, rest = divmod(rank, 2**step)
    return (place - 1) * 2**step if place % 2 and not rest else None
