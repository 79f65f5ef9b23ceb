def cheapest(t, tokens, days):
    """The fastest layout on the fewest devices that are in time."""
    for count in SIZES:
        best = min(layouts(t, count), key=lambda c: price(t, c, tokens)[0])
        if price(t, best, tokens)[0] <= days:
            return best
