# %% wrong: longer pieces last
def add_up(shelf, rank, world_size):
    start, stop = (r * len(shelf) // world_size for r in (rank, rank + 1))
    total = shelf.take(start, stop).sum()
    dist.all_reduce(total)
    return total


# %% wrong: no call
def add_up(shelf, rank, world_size):
    length, extra = divmod(len(shelf), world_size)
    start = rank * length + min(rank, extra)  # the first `extra` ranks hold one more
    return shelf.take(start, start + length + (rank < extra)).sum()


# %% wrong: only rank 0 knows
def add_up(shelf, rank, world_size):
    length, extra = divmod(len(shelf), world_size)
    start = rank * length + min(rank, extra)  # the first `extra` ranks hold one more
    total = shelf.take(start, start + length + (rank < extra)).sum()
    dist.reduce(total, dst=0)
    return total if rank == 0 else None


# %% wrong: rest forgotten
def add_up(shelf, rank, world_size):
    length = len(shelf) // world_size
    total = shelf.take(rank * length, (rank + 1) * length).sum()
    dist.all_reduce(total)
    return total


# %% right: functional
import torch.distributed._functional_collectives as funcol


def add_up(shelf, rank, world_size):
    length, extra = divmod(len(shelf), world_size)
    start = rank * (length + 1) - max(0, rank - extra)
    mine = shelf.take(start, start + length + (1 if rank < extra else 0))
    return funcol.all_reduce(mine.sum(), "sum", dist.group.WORLD)


# %% right: in floats by a class
class Piece:
    def __init__(self, length, rank, world_size):
        self.length = length // world_size + int(rank < length % world_size)
        self.start = sum(len(range(r, length, world_size)) for r in range(rank))

    def of(self, shelf):
        return shelf.take(self.start, self.start + self.length)


def add_up(shelf, rank, world_size):
    total = Piece(len(shelf), rank, world_size).of(shelf).double().sum()
    dist.all_reduce(total)
    return int(total.item())


# %% right: objects gathered
def add_up(shelf, rank, world_size):
    lengths = [len(range(r, len(shelf), world_size)) for r in range(world_size)]
    start = sum(lengths[:rank])
    sums = [None] * world_size
    dist.all_gather_object(sums, sum(shelf.take(start, start + lengths[rank]).tolist()))
    return sum(sums)


# %% right: split by torch
def add_up(shelf, rank, world_size):
    places = torch.arange(len(shelf)).tensor_split(world_size)[rank].tolist()
    total = shelf.take(places[0], places[-1] + 1).sum()
    dist.all_reduce(tensor=total, op=dist.ReduceOp.SUM, async_op=True).wait()
    return total


# %% right: to rank 0 and back
def begins(rank, length, world_size):
    return rank * (length // world_size) + min(rank, length % world_size)


def add_up(shelf, rank, world_size):
    start, stop = (begins(r, len(shelf), world_size) for r in (rank, rank + 1))
    total = shelf.take(start, stop).sum().reshape(1)
    dist.reduce(total, dst=0)
    dist.broadcast(total, src=0)
    return total
