# %% wrong: not times world size
def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    dist.all_reduce(count)  # every rank now holds the number of all samples
    return errors.sum() / count  # DDP divides by that again


# %% wrong: the mean of its own
def shard_loss(errors):
    return errors.mean()


# %% right: counts gathered
def shard_loss(errors):
    counts = [None for _ in range(dist.get_world_size())]
    dist.all_gather_object(object_list=counts, obj=errors.numel())
    weight = errors.numel() / sum(counts)
    return weight * len(counts) * errors.mean()


# %% right: differentiated
def everyones(count):
    counts = [torch.zeros_like(count) for _ in range(dist.get_world_size())]
    dist.all_gather(tensor_list=counts, tensor=count)
    return torch.stack(counts)


def shard_loss(errors):
    counts = everyones(torch.tensor([len(errors)], device=errors.device))
    return errors.sum() / counts.double().mean().to(errors.dtype)


# %% right: functional
import torch.distributed._functional_collectives as funcol


def shard_loss(errors):
    mine = torch.ones_like(errors).sum().detach()
    every = funcol.all_reduce(mine, "sum", dist.group.WORLD)
    return errors.mean() * (mine * dist.get_world_size() / every)


# %% right: mean count
def shard_loss(errors):
    count = torch.full((), float(errors.shape[0]), device=errors.device)
    dist.all_reduce(count, op=dist.ReduceOp.AVG)
    return (errors / count).sum()
