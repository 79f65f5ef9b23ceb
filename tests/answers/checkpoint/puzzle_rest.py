# %% wrong: batches as rows
def rest(order, rank, world_size, done, size):
    return order[rank::world_size][done:]


# %% wrong: from the beginning
def rest(order, rank, world_size, done, size):
    return order[rank::world_size]


# %% right: by batches
def rest(order, rank, world_size, done, size):
    mine = [row for place, row in enumerate(order) if place % world_size == rank]
    batches = [mine[i : i + size] for i in range(0, len(mine), size)]
    return [row for batch in batches[done:] for row in batch]
