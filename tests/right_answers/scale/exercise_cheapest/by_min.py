def cheapest(t, tokens, days):
    def hours(c):
        took, cost = price(t, c, tokens)
        return cost if took <= days else inf

    best = [
        min(layouts(t, count), key=hours, default=None) for count in reversed(SIZES)
    ]
    return min(filter(None, best), key=hours)
