# %% wrong: written over its own
def total(mine):
    dist.all_reduce(mine)
    return mine


# %% wrong: its own alone
CHANGES = {"    dist.all_reduce(both)\n": ""}


# %% right: zeros and its own
def total(mine):
    result = torch.zeros_like(mine)
    result += mine
    dist.all_reduce(result, op=dist.ReduceOp.SUM)
    return result[0]
