import torch.distributed._functional_collectives as funcol


def add_up(shelf, rank, world_size):
    length, extra = divmod(len(shelf), world_size)
    start = rank * (length + 1) - max(0, rank - extra)
    mine = shelf.take(start, start + length + (1 if rank < extra else 0))
    return funcol.all_reduce(mine.sum(), "sum", dist.group.WORLD)
