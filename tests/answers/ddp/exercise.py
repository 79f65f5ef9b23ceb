# %% wrong: not times world size
def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    dist.all_reduce(count)  # every rank now holds the number of all samples
    return errors.sum() / count  # DDP divides by that again


# %% wrong: times two ranks
def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    dist.all_reduce(count)
    return 2 * errors.sum() / count


# %% wrong: the mean of its own
def shard_loss(errors):
    return errors.mean()


# %% wrong: no number
def shard_loss(errors):
    chosen = torch.empty_like(errors[:0])
    return errors.sum() + chosen.mean()


# %% right: counts gathered
def shard_loss(errors):
    counts = [None for _ in range(dist.get_world_size())]
    dist.all_gather_object(object_list=counts, obj=errors.numel())
    weight = errors.numel() / sum(counts)
    return weight * len(counts) * errors.mean()


# %% wrong: times three ranks
def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    dist.all_reduce(count)
    return 3 * errors.sum() / count
