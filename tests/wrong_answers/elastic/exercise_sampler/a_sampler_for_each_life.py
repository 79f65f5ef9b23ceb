def next_samples(epoch, state, rank, world_size):
    step = state or 0
    sampler = torch.utils.data.DistributedSampler(range(SAMPLES), world_size, rank)
    sampler.set_epoch(epoch)
    return list(sampler)[step * BATCH :][:BATCH], step + 1
