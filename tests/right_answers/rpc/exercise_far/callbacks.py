import threading


def summary(numbers):
    numbers = numbers.double()
    return [numbers.numel(), numbers.mean().item(), numbers.square().mean().item()]


def statistics(names):
    parts, lock = [], threading.Lock()

    def keep(future):
        with lock:
            parts.append(future.value())

    asked = [
        rpc.rpc_async(n, read, (s,)).then(keep) for n in names for s in range(SHARDS)
    ]
    for each in asked:
        each.wait()
    count = sum(part[0] for part in parts)
    mean, square = (sum(p[0] * p[i] for p in parts) / count for i in (1, 2))
    return mean, (square - mean**2) ** 0.5
