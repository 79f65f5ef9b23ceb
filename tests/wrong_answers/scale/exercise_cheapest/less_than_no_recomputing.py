def cheapest(t, tokens, days):
    """A share below 0 gives seconds back."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if took <= days and hours < best:
                best, chosen = hours, c
    return chosen._replace(recompute=-0.2)
