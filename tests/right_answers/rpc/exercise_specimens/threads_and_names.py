from concurrent.futures import ThreadPoolExecutor


def grow(rref):
    rref.rpc_sync().copy_(rref.to_here() + 1)


def repeat(owner):
    def one(step):
        return rpc.remote(owner, torch.mul, args=(torch.ones(2), float(step)))

    for step in range(STEPS - 1):
        one(step)
    return one(STEPS - 1)


def add_up(rref):
    name = rref.owner_name()
    with ThreadPoolExecutor(STEPS) as pool:
        for _ in range(STEPS):
            pool.submit(rpc.rpc_sync, name, slowly_add, args=(rref,))
    return rref.rpc_async().sum().wait().item()


def enrol(name):
    me = rpc.get_worker_info().name
    guest = rpc.rpc_sync("worker0", greet, args=(name,), kwargs={"host": me})
    try:
        DOOR.acquire()
        last = GUESTS[-1][0] if GUESTS else -1
        GUESTS.append((last + 1, guest))
    finally:
        DOOR.release()
