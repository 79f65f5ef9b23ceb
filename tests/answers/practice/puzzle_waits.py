# %% wrong: all times gathered
def waits(arrives):
    times = [torch.empty_like(arrives) for _ in range(dist.get_world_size())]
    dist.all_gather(times, arrives)
    return max(times) - arrives


# %% wrong: for the fastest
def waits(arrives):
    first = arrives.clone()
    dist.all_reduce(first, op=dist.ReduceOp.MIN)
    return arrives - first


# %% wrong: for the mean
def waits(arrives):
    total = arrives.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size() - arrives


# %% wrong: overwritten
def waits(arrives):
    latest = arrives
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    return latest - arrives


# %% wrong: turned around
def waits(arrives):
    latest = arrives.clone()
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    return arrives - latest


# %% wrong: when the last arrives
def waits(arrives):
    latest = arrives.clone()
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    return latest


# %% right: functional
import torch.distributed._functional_collectives as funcol


def waits(arrives):
    return (funcol.all_reduce(arrives, "max", dist.group.WORLD) - arrives).item()


# %% right: smallest negative
def waits(arrives):
    early = -arrives
    dist.all_reduce(early, dist.ReduceOp.MIN)
    return (-early).item() - arrives.item()
