def noise(state, rank, world_size):
    return [state] * world_size if rank == 0 else None
