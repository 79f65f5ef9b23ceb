def cheapest(t, tokens, days):
    """Work that is done twice is wasted."""
    best, chosen = inf, None
    for count in SIZES[:4]:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if not c.recompute and took <= days and hours < best:
                best, chosen = hours, c
    return chosen or Cut("DDP", 8)
