"""No remote call at all: as if every worker had the data of worker 0."""


def summary(numbers):
    numbers = numbers.double()
    return len(numbers), numbers.sum().item(), numbers.square().sum().item()


def statistics(names):
    parts = [summary(shard_of(shard)) for _ in names for shard in range(SHARDS)]
    count, total, squares = (sum(column) for column in zip(*parts, strict=True))
    mean = total / count
    return mean, (squares / count - mean**2) ** 0.5
