def cheapest(t, tokens, days):
    """The fewest hours, however late."""
    every = [c for count in SIZES for c in layouts(t, count)]
    return min(every, key=lambda c: price(t, c, tokens)[1])
