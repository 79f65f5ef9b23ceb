# %% wrong: all files
def reads(rows, rank, world_size, writers):
    return list(range(writers))


# %% wrong: end counts as well
def reads(rows, rank, world_size, writers):
    mine, each = rows // world_size, rows // writers
    return list(range(rank * mine // each, (rank + 1) * mine // each + 1))


# %% right: as a set
def reads(rows, rank, world_size, writers):
    wanted = range(rank * rows // world_size, (rank + 1) * rows // world_size)
    return {row * writers // rows for row in wanted}


# %% right: overlaps
def reads(rows, rank, world_size, writers):
    first, end = rank * rows // world_size, (rank + 1) * rows // world_size
    edges = [writer * rows // writers for writer in range(writers + 1)]
    return [w for w in range(writers) if max(first, edges[w]) < min(end, edges[w + 1])]


# %% right: row by row
def reads(rows, rank, world_size, writers):
    wanted = torch.arange(rows).chunk(world_size)[rank]
    written = enumerate(torch.arange(rows).chunk(writers))
    return [file for file, part in written if set(part.tolist()) & set(wanted.tolist())]
