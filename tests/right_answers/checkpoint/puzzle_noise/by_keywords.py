def noise(state, rank, world_size):
    if rank:
        return dist.gather(tensor=state, dst=0)
    kept = list(torch.empty(world_size, 1, dtype=state.dtype).unbind())
    dist.gather(tensor=state, gather_list=kept, dst=0, async_op=True).wait()
    return [kept_state.item() for kept_state in kept]
