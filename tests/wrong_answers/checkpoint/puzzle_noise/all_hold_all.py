def noise(state, rank, world_size):
    states = [torch.empty_like(state) for _ in range(world_size)]
    dist.all_gather(states, state)
    return states
