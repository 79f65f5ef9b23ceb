def cheapest(t, tokens, days):
    every = [c for count in SIZES for c in layouts(t, count)]
    priced = sorted(((*reversed(price(t, c, tokens)), i) for i, c in enumerate(every)))
    return next(every[i] for _, took, i in priced if took <= days)
