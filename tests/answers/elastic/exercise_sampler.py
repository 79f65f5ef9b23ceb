# %% wrong: a sampler for each life
def next_samples(epoch, state, rank, world_size):
    step = state or 0
    sampler = torch.utils.data.DistributedSampler(range(SAMPLES), world_size, rank)
    sampler.set_epoch(epoch)
    return list(sampler)[step * BATCH :][:BATCH], step + 1


# %% wrong: kept in the process
# The place is kept in the process, which knows nothing of the steps it missed.
def next_samples(epoch, state, rank, world_size):
    places = next_samples.__dict__.setdefault("places", {})
    done = places.get(epoch, 0)
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES, generator=generator).tolist()
    together = order[done : done + BATCH * world_size]
    places[epoch] = done + len(together)
    return together[rank::world_size], 0


# %% wrong: one order for all epochs
def next_samples(epoch, state, rank, world_size):
    done = state or 0
    together = list(range(SAMPLES))[done : done + BATCH * world_size]
    return together[rank::world_size], done + len(together)


# %% wrong: the end where a rank has none
import random


def next_samples(epoch, state, rank, world_size):
    order = random.Random(epoch).sample(range(SAMPLES), SAMPLES)
    at = state or 0
    mine = order[at + rank * BATCH : at + (rank + 1) * BATCH]
    return mine, at + BATCH * world_size if mine else SAMPLES


# %% wrong: the rest left out
def next_samples(epoch, state, rank, world_size):
    done = state or 0
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES, generator=generator).tolist()
    together = order[done : done + BATCH * world_size]
    if len(together) < BATCH * world_size:
        return [], done
    return together[rank::world_size], done + len(together)


# %% wrong: turned by the epoch
# No shuffling: each epoch only begins at another sample.
def next_samples(epoch, state, rank, world_size):
    done = state or 0
    order = [(i + epoch) % SAMPLES for i in range(SAMPLES)]
    together = order[done : done + BATCH * world_size]
    return together[rank::world_size], done + len(together)


# %% right: sorted by a draw
import random


class Order:
    def __init__(self, epoch):
        draw = random.Random(f"epoch {epoch}")
        self.samples = sorted(range(SAMPLES), key=lambda _: draw.random())

    def share(self, start, stop, rank, world_size):
        return [self.samples[i] for i in range(start + rank, stop, world_size)]


def next_samples(epoch, state, rank, world_size):
    start = state["used"] if state else 0
    stop = min(start + BATCH * world_size, SAMPLES)
    return Order(epoch).share(start, stop, rank, world_size), {"used": stop}
