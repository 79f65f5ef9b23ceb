def add_up(rref):
    return rref.to_here().sum().item() + 2 * STEPS
