def order(sizes, sent, machine):
    """The innermost is the largest that fits; the others in any order."""
    fits = [name for name in sizes if sizes[name] <= machine]
    last = max(fits or sizes, key=lambda name: sent[name])
    return [name for name in sizes if name != last] + [last]
