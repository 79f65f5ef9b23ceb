def noise(state, rank, world_size):
    states = [torch.empty_like(state) for _ in range(world_size)]
    dist.gather(state, states if rank == 0 else None)
    return states
