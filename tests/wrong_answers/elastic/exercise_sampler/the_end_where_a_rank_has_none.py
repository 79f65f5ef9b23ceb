import random


def next_samples(epoch, state, rank, world_size):
    order = random.Random(epoch).sample(range(SAMPLES), SAMPLES)
    at = state or 0
    mine = order[at + rank * BATCH : at + (rank + 1) * BATCH]
    return mine, at + BATCH * world_size if mine else SAMPLES
