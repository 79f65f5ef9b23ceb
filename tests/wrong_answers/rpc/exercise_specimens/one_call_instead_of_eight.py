"""The total is right, and none of the slow additions was waited for: none was made."""


def add_up(rref):
    rref.rpc_sync().add_(STEPS)
    return rref.to_here().sum().item()
