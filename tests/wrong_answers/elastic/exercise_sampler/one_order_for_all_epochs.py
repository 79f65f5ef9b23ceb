def next_samples(epoch, state, rank, world_size):
    done = state or 0
    together = list(range(SAMPLES))[done : done + BATCH * world_size]
    return together[rank::world_size], done + len(together)
