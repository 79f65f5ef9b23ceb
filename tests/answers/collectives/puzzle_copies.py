# %% wrong: all bring a list
def copies(row, rank, world_size):
    buf = torch.empty_like(row)
    dist.scatter(buf, [row] * world_size, src=0)
    return buf


# %% wrong: by broadcast
def copies(row, rank, world_size):
    dist.broadcast(row, src=0)
    return row


# %% wrong: the root keeps its row alone
def copies(row, rank, world_size):
    buf = torch.empty_like(row)
    empty = [torch.zeros_like(row)] * (world_size - 1)
    dist.scatter(buf, [row, *empty] if rank == 0 else None, src=0)
    return buf


# %% right: stacked
def copies(row, rank, world_size):
    pieces = list(row.expand(world_size, -1).clone()) if not rank else []
    dist.scatter(got := torch.zeros_like(row), scatter_list=pieces)
    return got
