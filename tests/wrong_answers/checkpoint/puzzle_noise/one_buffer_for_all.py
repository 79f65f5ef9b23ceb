def noise(state, rank, world_size):
    states = [torch.empty_like(state)] * world_size if rank == 0 else None
    dist.gather(state, states)
    return states
