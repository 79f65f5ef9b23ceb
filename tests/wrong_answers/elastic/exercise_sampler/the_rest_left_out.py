def next_samples(epoch, state, rank, world_size):
    done = state or 0
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES, generator=generator).tolist()
    together = order[done : done + BATCH * world_size]
    if len(together) < BATCH * world_size:
        return [], done
    return together[rank::world_size], done + len(together)
