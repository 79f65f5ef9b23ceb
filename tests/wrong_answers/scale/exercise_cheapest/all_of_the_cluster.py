def cheapest(t, tokens, days):
    """They are there, so they are used."""
    return min(layouts(t, SIZES[-1]), key=lambda c: price(t, c, tokens)[1])
