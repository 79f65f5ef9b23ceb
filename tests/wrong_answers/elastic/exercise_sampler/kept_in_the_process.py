"""The place is kept in the process, which knows nothing of the steps it missed."""


def next_samples(epoch, state, rank, world_size):
    places = next_samples.__dict__.setdefault("places", {})
    done = places.get(epoch, 0)
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES, generator=generator).tolist()
    together = order[done : done + BATCH * world_size]
    places[epoch] = done + len(together)
    return together[rank::world_size], 0
