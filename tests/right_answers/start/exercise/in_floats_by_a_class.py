class Piece:
    def __init__(self, length, rank, world_size):
        self.length = length // world_size + int(rank < length % world_size)
        self.start = sum(len(range(r, length, world_size)) for r in range(rank))

    def of(self, shelf):
        return shelf.take(self.start, self.start + self.length)


def add_up(shelf, rank, world_size):
    total = Piece(len(shelf), rank, world_size).of(shelf).double().sum()
    dist.all_reduce(total)
    return int(total.item())
