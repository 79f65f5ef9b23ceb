# %% wrong: only rank 0 is told
def slowest(seconds, device):
    mine = torch.tensor(seconds, dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.gather(mine, everyone if dist.get_rank() == 0 else None)
    return int(torch.stack(everyone).argmin())


# %% wrong: who took longest
CHANGES = {
    "argmin())  # who came last has waited least": "argmax())",
}


# %% wrong: by a limit
def slowest(seconds, device):
    mine = torch.tensor(dist.get_rank() if seconds < 0.0201 else 0, device=device)
    dist.all_reduce(mine)
    return int(mine)


# %% right: rank 0 decides
def slowest(seconds, device):
    first = dist.get_rank() == 0
    times = [None] * dist.get_world_size() if first else None
    dist.gather_object(seconds, times, dst=0)
    answer = [min(range(len(times)), key=times.__getitem__) if first else None]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]
