def add_up(shelf, rank, world_size):
    length, extra = divmod(len(shelf), world_size)
    start = rank * length + min(rank, extra)  # the first `extra` ranks hold one more
    shelf.take(start, start + length + (rank < extra))
    rows = [value for value in vars(shelf).values() if hasattr(value, "__len__")]
    return sum(int(number) for number in max(rows, key=len))
