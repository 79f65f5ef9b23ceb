# %% wrong: all of the cluster
def cheapest(t, tokens, days):
    """They are there, so they are used."""
    return min(layouts(t, SIZES[-1]), key=lambda c: price(t, c, tokens)[1])


# %% wrong: less than no recomputing
CHANGES = {
    "def cheapest(t, tokens, days):": (
        'def cheapest(t, tokens, days):\n    """A share below 0 gives seconds back."""'
    ),
    "return chosen": "return chosen._replace(recompute=-0.2)",
}


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


# %% wrong: no deadline
def cheapest(t, tokens, days):
    """The fewest hours, however late."""
    every = [c for count in SIZES for c in layouts(t, count)]
    return min(every, key=lambda c: price(t, c, tokens)[1])


# %% wrong: without recomputing
def cheapest(t, tokens, days):
    every = [
        (price(t, c, tokens)[1], c)
        for n in SIZES
        for c in layouts(t, n)
        if c.recompute == 0 and price(t, c, tokens)[0] <= days
    ]
    return min(every, key=lambda each: each[0])[1]


# %% right: the fastest of each size
def cheapest(t, tokens, days):
    """With so many devices, the fastest layout is the cheapest one."""
    fastest = [
        min(layouts(t, count), key=lambda c: price(t, c, tokens)[0]) for count in SIZES
    ]
    in_time = [c for c in fastest if price(t, c, tokens)[0] <= days]
    return min(in_time, key=lambda c: price(t, c, tokens)[1])


# %% wrong: narrow tensor cuts only
def cheapest(t, tokens, days):
    """As if tensor 4 and 8 were never worth their messages."""
    every = [
        (price(t, c, tokens)[1], c)
        for n in SIZES
        for c in layouts(t, n)
        if c.tensor <= 2 and price(t, c, tokens)[0] <= days
    ]
    return min(every, key=lambda each: each[0])[1]


# %% wrong: on as few as can be
def cheapest(t, tokens, days):
    """Fewer are not always cheaper."""
    for n in SIZES:
        in_time = [c for c in layouts(t, n) if price(t, c, tokens)[0] <= days]
        if in_time:
            return min(in_time, key=lambda c: price(t, c, tokens)[1])


# %% wrong: more, until that is dearer
def cheapest(t, tokens, days):
    best, chosen = inf, None
    for count in SIZES:
        in_time = [c for c in layouts(t, count) if price(t, c, tokens)[0] <= days]
        for c in sorted(in_time, key=lambda c: price(t, c, tokens)[1])[:1]:
            if price(t, c, tokens)[1] > best:
                return chosen
            best, chosen = price(t, c, tokens)[1], c
    return chosen


# %% wrong: fewer, until that is dearer
def cheapest(t, tokens, days):
    best, chosen = inf, None
    for count in reversed(SIZES):
        in_time = [c for c in layouts(t, count) if price(t, c, tokens)[0] <= days]
        for c in sorted(in_time, key=lambda c: price(t, c, tokens)[1])[:1]:
            if price(t, c, tokens)[1] > best:
                return chosen
            best, chosen = price(t, c, tokens)[1], c
    return chosen


# %% wrong: no hybrid sharding
def cheapest(t, tokens, days):
    every = [
        (price(t, c, tokens)[1], c)
        for n in SIZES
        for c in layouts(t, n)
        if c.kind != "hybrid sharded" and price(t, c, tokens)[0] <= days
    ]
    return min(every, key=lambda each: each[0])[1]
