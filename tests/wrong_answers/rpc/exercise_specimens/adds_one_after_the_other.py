"""Right, but no two additions run at the same time."""


def grow(rref):
    rref.rpc_sync().add_(1)


def repeat(owner):
    for step in range(STEPS):
        rref = rpc.remote(owner, torch.full, args=((2,), float(step)))
    return rref


def add_up(rref):
    for _ in range(STEPS):
        rpc.rpc_sync(rref.owner(), slowly_add, args=(rref,))
    return rref.to_here().sum().item()


def enrol(name):
    greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
    with DOOR:
        number = len(GUESTS)
        time.sleep(0.05)
        GUESTS.append((number, greeting))
