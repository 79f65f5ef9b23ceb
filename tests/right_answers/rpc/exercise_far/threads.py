from concurrent.futures import ThreadPoolExecutor


def summary(numbers):
    powers = numbers.double().unsqueeze(1) ** torch.arange(3)
    return dict(zip("nts", powers.sum(dim=0).tolist(), strict=True))


def statistics(names):
    shards = [(name, shard) for name in names for shard in range(SHARDS)]
    with ThreadPoolExecutor(len(shards)) as pool:

        def ask(shard):
            return rpc.rpc_sync(shard[0], read, args=shard[1:])

        found = list(pool.map(ask, shards))
    n, t, s = (sum(part[key] for part in found) for key in "nts")
    return t / n, max(0.0, s / n - (t / n) ** 2) ** 0.5
