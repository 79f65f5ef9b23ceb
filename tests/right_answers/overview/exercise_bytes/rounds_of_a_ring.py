class Ring:
    def __init__(self, ranks):
        self.ranks, self.bytes = ranks, 0

    def sum(self, size):
        for _ in range(2 * (self.ranks - 1)):
            self.bytes += size / self.ranks
        return self

    def gather(self, size):
        self.bytes += (self.ranks - 1) * size / self.ranks
        return self


def estimate(road, world_size, blocks, width, hidden, rows):
    ring = Ring(world_size)
    for number in range(blocks):
        size = 4 * ((width + 1) * hidden + (hidden + 1) * width)
        if road == "ddp":
            ring.sum(size)
        elif road == "sharded":
            ring.gather(size).gather(size).sum(size)
        else:
            ring.sum(4 * rows * width)
            if number > 0:
                ring.sum(4 * rows * width)
    return ring.bytes
