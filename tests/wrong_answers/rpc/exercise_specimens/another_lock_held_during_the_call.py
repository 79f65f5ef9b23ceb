"""A second lock lets in one guest at a time."""


def grow(rref):
    rref.rpc_sync().add_(1)


def repeat(owner):
    for step in range(STEPS):
        rref = rpc.remote(owner, torch.full, args=((2,), float(step)))
    return rref


def add_up(rref):
    added = [
        rpc.rpc_async(rref.owner(), slowly_add, args=(rref,)) for _ in range(STEPS)
    ]
    torch.futures.wait_all(added)
    return rref.to_here().sum().item()


def enrol(name):
    lock = globals().setdefault("BELL", threading.Lock())
    with lock:
        greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
        with DOOR:
            GUESTS.append((len(GUESTS), greeting))
