# %% wrong: every rank reads all
def add_up(shelf):
    total = shelf.read(range(len(shelf))).sum()
    dist.all_reduce(total)
    return total


# %% wrong: no call
def add_up(shelf):
    return shelf.read(range(dist.get_rank(), len(shelf), dist.get_world_size())).sum()


# %% wrong: only rank 0 knows
def add_up(shelf):
    places = range(dist.get_rank(), len(shelf), dist.get_world_size())
    total = shelf.read(places).sum()
    dist.reduce(total, dst=0)
    return total if dist.get_rank() == 0 else None


# %% wrong: rest forgotten
def add_up(shelf):
    rank, length = dist.get_rank(), len(shelf) // dist.get_world_size()
    total = shelf.read(range(rank * length, (rank + 1) * length)).sum()
    dist.all_reduce(total)
    return total


# %% wrong: the last rank reads the rest
def add_up(shelf):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    length = len(shelf) // world_size
    stop = len(shelf) if rank == world_size - 1 else (rank + 1) * length
    total = shelf.read(range(rank * length, stop)).sum()
    dist.all_reduce(total)
    return total


# %% wrong: equal pieces while there are numbers
def add_up(shelf):
    rank, length = dist.get_rank(), -(-len(shelf) // dist.get_world_size())
    stop = min((rank + 1) * length, len(shelf))
    total = shelf.read(range(rank * length, stop)).sum()
    dist.all_reduce(total)
    return total


# %% wrong: a rank without numbers skips the call
def add_up(shelf):
    places = range(dist.get_rank(), len(shelf), dist.get_world_size())
    if not places:
        return torch.tensor(0)
    total = shelf.read(places).sum()
    dist.all_reduce(total)
    return total


# %% right: pieces, to rank 0 and back
def add_up(shelf):
    pieces = torch.arange(len(shelf)).tensor_split(dist.get_world_size())
    total = shelf.read(pieces[dist.get_rank()].tolist()).sum().reshape(1)
    dist.reduce(total, dst=0)
    dist.broadcast(total, src=0)
    return total
