def grow(rref):
    rref.remote().add_(1).to_here()


def repeat(owner):
    kept = []
    for step in range(STEPS):
        kept = [rpc.remote(owner, torch.full, args=((2,), float(step)))]
    return kept.pop()


def add_up(rref):
    calls = [rpc.remote(rref.owner(), slowly_add, args=(rref,)) for _ in range(STEPS)]
    [call.to_here() for call in calls]
    return rref.rpc_sync().sum().item()


def enrol(name):
    greeting = rpc.remote(
        "worker0", greet, args=(name, rpc.get_worker_info())
    ).to_here()
    with DOOR:
        GUESTS.append((len(GUESTS), greeting))
