def cheapest(t, tokens, days):
    """Tensor parallel sends too much."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            whole = c.tensor == c.pipeline == 1 and c.kind == "sharded"
            if whole and took <= days and hours < best:
                best, chosen = hours, c
    return chosen or Cut("DDP", 8)
