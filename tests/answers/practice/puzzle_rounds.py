# %% wrong: its own
def rounds(batches):
    dist.all_reduce(torch.tensor([batches]), op=dist.ReduceOp.MIN)
    return batches


# %% wrong: the most
def rounds(batches):
    number = torch.tensor([batches])
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return number


# %% right: as a maximum
def rounds(batches):
    number = torch.full((1,), -batches)
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return int(number.neg())
