def cheapest(t, tokens, days):
    """Time and devices, but not what fits."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took = sum(seconds(replace(t, devices=count), c).values())
            took *= tokens / t.sequences / t.length / DAY
            if took <= days and took * count < best:
                best, chosen = took * count, c
    return chosen
