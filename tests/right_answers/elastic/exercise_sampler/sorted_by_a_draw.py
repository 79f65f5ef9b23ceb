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
