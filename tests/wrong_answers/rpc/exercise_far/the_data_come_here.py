def summary(numbers):
    return numbers


def statistics(names):
    futures = [
        rpc.rpc_async(name, read, args=(shard,))
        for name in names
        for shard in range(SHARDS)
    ]
    numbers = torch.cat([future.wait() for future in futures]).double()
    return numbers.mean().item(), numbers.std(correction=0).item()
