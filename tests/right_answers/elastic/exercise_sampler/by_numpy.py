import numpy as np


def next_samples(epoch, state, rank, world_size):
    order = np.random.default_rng(epoch).permutation(SAMPLES)
    at = 0 if state is None else state
    new = order[at : at + BATCH * world_size]
    return new[rank::world_size].tolist(), at + len(new)
