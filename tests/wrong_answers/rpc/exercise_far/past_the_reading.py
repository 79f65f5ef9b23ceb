"""The numbers are fetched by a call that nobody counts."""


def summary(numbers):
    return len(numbers)


def statistics(names):
    futures = [
        rpc.rpc_async(name, shard_of, args=(shard,))
        for name in names
        for shard in range(SHARDS)
    ]
    numbers = torch.cat([future.wait() for future in futures]).double()
    return numbers.mean().item(), numbers.std(correction=0).item()
