# %% wrong: batches as rows
def rest(order, rank, world_size, done, size):
    return order[rank::world_size][done:]


# %% wrong: from the beginning
def rest(order, rank, world_size, done, size):
    return order[rank::world_size]


# %% wrong: in blocks
def rest(order, rank, world_size, done, size):
    share = len(order) // world_size
    return order[rank * share :][:share][done * size :]


# %% wrong: one batch again
def rest(order, rank, world_size, done, size):
    return order[rank::world_size][max(0, done - 1) * size :]


# %% wrong: one batch lost
def rest(order, rank, world_size, done, size):
    return order[rank::world_size][(done + 1) * size :]


# %% wrong: rows of one rank skipped
def rest(order, rank, world_size, done, size):
    return order[done * size :][rank::world_size]


# %% wrong: those that are done
def rest(order, rank, world_size, done, size):
    return order[rank::world_size][: done * size]


# %% right: a column
def rest(order, rank, world_size, done, size):
    return torch.tensor(order).view(-1, world_size)[done * size :, rank]


# %% right: by batches
def rest(order, rank, world_size, done, size):
    mine = [row for place, row in enumerate(order) if place % world_size == rank]
    batches = [mine[i : i + size] for i in range(0, len(mine), size)]
    return [row for batch in batches[done:] for row in batch]


# %% right: skipped before dealt
def rest(order, rank, world_size, done, size):
    start = done * size * world_size + rank
    return [order[place] for place in range(start, len(order), world_size)]
