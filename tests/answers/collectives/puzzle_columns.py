# %% wrong: by all gather
def columns(row):
    table = [torch.empty_like(row) for _ in row]
    dist.all_gather(table, row)
    return torch.stack(table).sum(dim=0)[dist.get_rank()]


# %% wrong: by all reduce
def columns(row):
    dist.all_reduce(row)
    return row[dist.get_rank()]


# %% wrong: by reduce scatter
def columns(row):
    total = row.new_empty(1)
    dist.reduce_scatter_tensor(total, row)
    return total


# %% wrong: its own row
def columns(row):
    buf = torch.empty_like(row)
    dist.all_to_all_single(buf, row)
    return row.sum()


# %% wrong: its own row after the call
def columns(row):
    dist.all_to_all_single(torch.empty_like(row), row)
    return row.sum()


# %% wrong: not added up
def columns(row):
    buf = torch.empty_like(row)
    dist.all_to_all_single(buf, row)
    return buf


# %% right: functional
import torch.distributed._functional_collectives as funcol


def columns(row):
    ones = [1] * len(row)
    return funcol.all_to_all_single(row, ones, ones, dist.group.WORLD).sum()


# %% right: lists
def columns(row):
    pieces = [piece.clone() for piece in row.split(1)]
    got = [torch.empty_like(piece) for piece in pieces]
    dist.all_to_all(got, pieces)
    return sum(got)
