from typing import NamedTuple


class Part(NamedTuple):
    count: int
    total: float
    squares: float

    def __add__(self, other):
        return Part(*map(sum, zip(self, other, strict=True)))


def summary(numbers):
    numbers = numbers.to(torch.float64)
    return Part(len(numbers), float(numbers.sum()), float((numbers**2).sum()))


def statistics(names):
    parts = [
        rpc.remote(n, read, kwargs={"shard": s}) for n in names for s in range(SHARDS)
    ]
    whole = sum((part.to_here() for part in parts), Part(0, 0.0, 0.0))
    mean = whole.total / whole.count
    return mean, (whole.squares / whole.count - mean * mean) ** 0.5
