# %% wrong: back in the same order
def ticks(rank, stages, m):
    forward, backward = ([f"{way}{i}" for i in range(m)] for way in "FB")
    before, between = ["idle"] * rank, ["idle"] * 2 * (stages - 1 - rank)
    return before + forward + between + backward + before


# %% wrong: for three stages
# The number of stages is taken from the picture.
def ticks(rank, stages, m):
    half = ["idle"] * rank + [f"F{i}" for i in range(m)] + ["idle"] * (2 - rank)
    return half + [tick.replace("F", "B") for tick in reversed(half)]


# %% wrong: no bubble
def ticks(rank, stages, m):
    return [f"F{i}" for i in range(m)] + [f"B{i}" for i in reversed(range(m))]


# %% right: a clock
def ticks(rank, stages, m):
    end = 2 * (m + stages - 1)
    row = []
    for t in range(end):
        ahead, back = t - rank, end - 1 - t - rank
        row.append(
            f"F{ahead}" if 0 <= ahead < m else f"B{back}" if 0 <= back < m else "idle"
        )
    return row


# %% right: as a tuple
def ticks(rank, stages, m):
    does = {rank + i: f"F{i}" for i in range(m)}
    end = 2 * (m + stages - 1)
    does |= {end - 1 - rank - i: f"B{i}" for i in range(m)}
    return tuple(does.get(tick, "idle") for tick in range(end))


# %% right: tick by tick
def ticks(rank, stages, m):
    half, row = m + stages - 1, []
    for tick in range(2 * half):
        i = (tick if tick < half else 2 * half - 1 - tick) - rank
        row.append(f"{'F' if tick < half else 'B'}{i}" if 0 <= i < m else "idle")
    return row
