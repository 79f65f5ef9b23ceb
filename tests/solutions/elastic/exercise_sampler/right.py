def next_samples(epoch, state, rank, world_size):
    done = state or 0  # samples that all ranks together have used
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES, generator=generator).tolist()
    together = order[done : done + BATCH * world_size]
    return together[rank::world_size], done + len(together)
