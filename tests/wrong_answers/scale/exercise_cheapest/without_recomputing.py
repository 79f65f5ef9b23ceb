def cheapest(t, tokens, days):
    every = [
        (price(t, c, tokens)[1], c)
        for n in SIZES
        for c in layouts(t, n)
        if c.recompute == 0 and price(t, c, tokens)[0] <= days
    ]
    return min(every, key=lambda each: each[0])[1]
