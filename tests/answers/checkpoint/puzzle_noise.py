# %% wrong: all hold all
def noise(state, rank, world_size):
    states = [torch.empty_like(state) for _ in range(world_size)]
    dist.all_gather(states, state)
    return states


# %% wrong: root alone
def noise(state, rank, world_size):
    return [state] if rank == 0 else None


# %% wrong: root does not call
def noise(state, rank, world_size):
    if rank:
        return dist.gather(state)
    return [state] * world_size


# %% right: by keywords
def noise(state, rank, world_size):
    if rank:
        return dist.gather(tensor=state, dst=0)
    kept = list(torch.empty(world_size, 1, dtype=state.dtype).unbind())
    dist.gather(tensor=state, gather_list=kept, dst=0, async_op=True).wait()
    return [kept_state.item() for kept_state in kept]
