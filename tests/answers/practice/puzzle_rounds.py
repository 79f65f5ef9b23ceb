# %% wrong: all numbers gathered
def rounds(batches):
    everyone = [torch.empty(1) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, torch.tensor([float(batches)]))
    return min(everyone)


# %% wrong: its own
def rounds(batches):
    dist.all_reduce(torch.tensor([batches]), op=dist.ReduceOp.MIN)
    return batches


# %% wrong: that of rank 0
def rounds(batches):
    number = torch.tensor([batches])
    dist.broadcast(number, src=0)
    return number


# %% wrong: the mean
def rounds(batches):
    number = torch.tensor([batches])
    dist.all_reduce(number)
    return number // dist.get_world_size()


# %% wrong: the most
def rounds(batches):
    number = torch.tensor([batches])
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return number


# %% wrong: the sum
def rounds(batches):
    fewest = torch.tensor([batches])
    dist.all_reduce(fewest)
    return fewest


# %% right: as a maximum
def rounds(batches):
    number = torch.full((1,), -batches)
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return int(number.neg())


# %% right: functional
import torch.distributed._functional_collectives as funcol


def rounds(batches):
    return funcol.all_reduce(torch.tensor(batches), "min", dist.group.WORLD).item()
