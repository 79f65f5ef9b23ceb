def my_share(items, rank, world_size):
    length, extra = divmod(len(items), world_size)
    start = rank * length + min(rank, extra)  # the first `extra` ranks hold one more
    return items[start : start + length + 0]
