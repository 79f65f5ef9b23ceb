"""Both get a number, and nobody has greeted them."""


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
    with DOOR:
        number = len(GUESTS)
        time.sleep(0.05)
        GUESTS.append((number, f"welcome, {name[:1]}"))
