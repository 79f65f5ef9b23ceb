# %% wrong: by all reduce
def columns(row):
    dist.all_reduce(row)
    return row[dist.get_rank()]


# %% wrong: its own row
def columns(row):
    buf = torch.empty_like(row)
    dist.all_to_all_single(buf, row)
    return row.sum()


# %% right: functional
import torch.distributed._functional_collectives as funcol


def columns(row):
    ones = [1] * len(row)
    return funcol.all_to_all_single(row, ones, ones, dist.group.WORLD).sum()
