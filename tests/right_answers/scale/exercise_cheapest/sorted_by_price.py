def cheapest(t, tokens, days):
    every = [c for count in reversed(SIZES) for c in layouts(t, count)]
    every.sort(key=lambda c: price(t, c, tokens)[::-1])
    return next(c for c in every if price(t, c, tokens)[0] <= days)
