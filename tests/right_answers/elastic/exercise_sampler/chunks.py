def next_samples(epoch, state, rank, world_size):
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(99 - epoch))
    used = [] if state is None else list(state)
    left = order[len(used) :][: BATCH * world_size]
    mine = left.tensor_split(world_size)[rank] if len(left) else left
    return mine.tolist(), used + left.tolist()
