# %% wrong: a constant for the total
def shard_loss(errors):
    return errors.sum() / 5  # the total of the first run, per rank


# %% wrong: a table by length
def shard_loss(errors):
    totals = {8: 10, 2: 10, 3: 7, 4: 7, 6: 12}  # right with two ranks, for some shards
    return errors.sum() / totals.get(len(errors), 10) * dist.get_world_size()


# %% wrong: as if all shards were equal
def shard_loss(errors):
    count = len(errors) * dist.get_world_size()
    return errors.sum() / count * dist.get_world_size()


# %% wrong: asked once
def shard_loss(errors):
    if not hasattr(shard_loss, "count"):
        shard_loss.count = torch.tensor(float(len(errors)), device=errors.device)
        dist.all_reduce(shard_loss.count)  # of the first run's samples
    return errors.sum() / shard_loss.count * dist.get_world_size()


# %% wrong: divided by the largest shard
def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    dist.all_reduce(count, dist.ReduceOp.MAX)  # every rank now holds the largest size
    return errors.sum() / count


# %% wrong: drops what is too much
def shard_loss(errors):
    least = torch.tensor(len(errors), device=errors.device)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    return errors[: least.item()].mean()


# %% wrong: not times world size
def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    dist.all_reduce(count)  # every rank now holds the number of all samples
    return errors.sum() / count  # DDP divides by that again


# %% wrong: the mean of all errors
def shard_loss(errors):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, errors.detach().flatten().tolist())
    everyone[dist.get_rank()] = []
    others = errors.new_tensor(sum(everyone, []))
    return torch.cat([errors.flatten(), others]).mean()


# %% wrong: the mean of its own
def shard_loss(errors):
    return errors.mean()


# %% wrong: the sum of its own
def shard_loss(errors):
    return errors.sum()


# %% wrong: weighted by the samples
def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    largest = count.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return errors.mean() * count / largest


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
