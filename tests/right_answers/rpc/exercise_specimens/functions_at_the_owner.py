def add_one(rref):
    rref.local_value().add_(1)


def grow(rref):
    rpc.rpc_sync(rref.owner(), add_one, args=(rref,))


def repeat(owner):
    for step in range(STEPS - 1):
        rpc.remote(owner, torch.full, args=((2,), float(step))).to_here()
    return rpc.remote(owner, torch.full, args=((2,), STEPS - 1.0))


def add_up(rref):
    futures = []
    for _ in range(STEPS):
        futures.append(rpc.rpc_async(rref.owner(), slowly_add, args=(rref,)))
    for future in futures:
        future.wait()
    return float(rref.to_here().sum())


def enrol(name):
    host = rpc.get_worker_info()
    greeting = rpc.rpc_async("worker0", greet, args=(name, host)).wait()
    DOOR.acquire()
    GUESTS.append((len(GUESTS), greeting))
    DOOR.release()
