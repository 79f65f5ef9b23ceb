import random


def next_samples(epoch, state, rank, world_size):
    if state is None:
        state = list(range(SAMPLES))
        random.Random(epoch).shuffle(state)
    now, later = state[: BATCH * world_size], state[BATCH * world_size :]
    return now[rank * BATCH : (rank + 1) * BATCH], later
