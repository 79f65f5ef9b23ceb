def cheapest(t, tokens, days):
    """Interleaved without asking whether the layers and the batch allow it."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            c = c._replace(laps=50) if c.pipeline > 1 else c
            took, hours = price(t, c, tokens)
            if took <= days and hours < best:
                best, chosen = hours, c
    return chosen
