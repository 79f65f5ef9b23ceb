def order(sizes, sent, machine):
    """Bytes times the size of the group: each rank is counted once too often."""
    return sorted(sizes, key=lambda name: sent[name] * sizes[name])
