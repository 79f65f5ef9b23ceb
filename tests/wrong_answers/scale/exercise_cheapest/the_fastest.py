def cheapest(t, tokens, days):
    """The least time, at any price."""
    every = [c for count in SIZES for c in layouts(t, count)]
    return min(every, key=lambda c: price(t, c, tokens)[0])
