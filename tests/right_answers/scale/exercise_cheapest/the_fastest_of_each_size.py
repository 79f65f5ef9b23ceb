def cheapest(t, tokens, days):
    """With so many devices, the fastest layout is the cheapest one."""
    fastest = [
        min(layouts(t, count), key=lambda c: price(t, c, tokens)[0]) for count in SIZES
    ]
    in_time = [c for c in fastest if price(t, c, tokens)[0] <= days]
    return min(in_time, key=lambda c: price(t, c, tokens)[1])
