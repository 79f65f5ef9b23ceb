# %% wrong: all of the cluster
def cheapest(t, tokens, days):
    """They are there, so they are used."""
    return min(layouts(t, SIZES[-1]), key=lambda c: price(t, c, tokens)[1])


# %% wrong: data parallel only
def cheapest(t, tokens, days):
    """No cut through the model."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if c.data == count and took <= days and hours <= best:
                best, chosen = hours, c
    return chosen or Cut("DDP", SIZES[-1])


# %% wrong: less than no recomputing
def cheapest(t, tokens, days):
    """A share below 0 gives seconds back."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if took <= days and hours < best:
                best, chosen = hours, c
    return chosen._replace(recompute=-0.2)


# %% wrong: memory is forgotten
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


# %% wrong: more laps than offered
def cheapest(t, tokens, days):
    """Interleaved without asking whether the layers and the batch allow it."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            c = c._replace(laps=50) if c.pipeline > 1 else c
            took, hours = price(t, c, tokens)
            if took <= days and hours < best:
                best, chosen = hours, c
    return chosen


# %% wrong: no deadline
def cheapest(t, tokens, days):
    """The fewest hours, however late."""
    every = [c for count in SIZES for c in layouts(t, count)]
    return min(every, key=lambda c: price(t, c, tokens)[1])


# %% wrong: tensor of a machine
def cheapest(t, tokens, days):
    """Tensor parallel over a whole machine, whatever its wires are."""
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if c.tensor == 8 and took <= days and hours < best:
                best, chosen = hours, c
    return chosen


# %% wrong: the fastest
def cheapest(t, tokens, days):
    """The least time, at any price."""
    every = [c for count in SIZES for c in layouts(t, count)]
    return min(every, key=lambda c: price(t, c, tokens)[0])


# %% wrong: the fewest devices
def cheapest(t, tokens, days):
    """The fastest layout on the fewest devices that are in time."""
    for count in SIZES:
        best = min(layouts(t, count), key=lambda c: price(t, c, tokens)[0])
        if price(t, best, tokens)[0] <= days:
            return best


# %% wrong: without recomputing
def cheapest(t, tokens, days):
    every = [
        (price(t, c, tokens)[1], c)
        for n in SIZES
        for c in layouts(t, n)
        if c.recompute == 0 and price(t, c, tokens)[0] <= days
    ]
    return min(every, key=lambda each: each[0])[1]


# %% wrong: without tensor
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


# %% right: sorted by price
def cheapest(t, tokens, days):
    every = [c for count in reversed(SIZES) for c in layouts(t, count)]
    every.sort(key=lambda c: price(t, c, tokens)[::-1])
    return next(c for c in every if price(t, c, tokens)[0] <= days)


# %% right: the fastest of each size
def cheapest(t, tokens, days):
    """With so many devices, the fastest layout is the cheapest one."""
    fastest = [
        min(layouts(t, count), key=lambda c: price(t, c, tokens)[0]) for count in SIZES
    ]
    in_time = [c for c in fastest if price(t, c, tokens)[0] <= days]
    return min(in_time, key=lambda c: price(t, c, tokens)[1])
