def cheapest(t, tokens, days):
    """Tensor parallel over a whole machine, whatever its wires are."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if c.tensor == 8 and took <= days and hours < best:
                best, chosen = hours, c
    return chosen
