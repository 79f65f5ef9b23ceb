def next_samples(epoch, state, rank, world_size):
    step = state or 0
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES, generator=generator).tolist()
    together = order[step * BATCH * world_size :][: BATCH * world_size]
    return together[rank::world_size], step + 1
