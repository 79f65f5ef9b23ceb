"""Right, but no two additions run at the same time."""


def add_up(rref):
    for _ in range(STEPS):
        rpc.rpc_sync(rref.owner(), slowly_add, args=(rref,))
    return rref.to_here().sum().item()
