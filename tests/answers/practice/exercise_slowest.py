# %% wrong: only rank 0 is told
def slowest(seconds, device):
    mine = torch.tensor(seconds, dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.gather(mine, everyone if dist.get_rank() == 0 else None)
    return int(torch.stack(everyone).argmin())


# %% wrong: who took longest
def slowest(seconds, device):
    mine = torch.tensor(seconds, dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return int(torch.stack(everyone).argmax())


# %% right: functional
import torch
import torch.distributed._functional_collectives as funcol


def slowest(seconds, device):
    mine = torch.tensor([seconds], device=device)
    every = funcol.all_gather_tensor(mine, 0, dist.group.WORLD)
    return every.argmin().item()


# %% right: into one tensor
def slowest(seconds, device):
    mine = torch.full((1,), seconds, device=device)
    table = torch.empty(dist.get_world_size(), device=device)
    dist.all_gather_into_tensor(table, mine, async_op=True).wait()
    return table.min(dim=0).indices


# %% right: least then who
def slowest(seconds, device):
    least = torch.tensor([seconds], device=device)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    is_me = least.item() == torch.tensor(seconds).item()
    who = torch.tensor([dist.get_rank() if is_me else -1], device=device)
    dist.all_reduce(who, op=dist.ReduceOp.MAX)
    return int(who)


# %% right: objects
def slowest(seconds, device):
    times = [None] * dist.get_world_size()
    dist.all_gather_object(obj=seconds, object_list=times)
    return times.index(min(times))


# %% right: one hot sum
def slowest(seconds, device):
    row = torch.zeros(dist.get_world_size(), dtype=torch.float64, device=device)
    row[dist.get_rank()] = seconds
    dist.all_reduce(row)
    return row.argmin().item()


# %% right: rank 0 decides
def slowest(seconds, device):
    first = dist.get_rank() == 0
    times = [None] * dist.get_world_size() if first else None
    dist.gather_object(seconds, times, dst=0)
    answer = [min(range(len(times)), key=times.__getitem__) if first else None]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]
