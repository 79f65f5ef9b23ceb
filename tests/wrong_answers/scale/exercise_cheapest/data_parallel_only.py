def cheapest(t, tokens, days):
    """No cut through the model."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if c.data == count and took <= days and hours <= best:
                best, chosen = hours, c
    return chosen or Cut("DDP", SIZES[-1])
