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


# %% right: as a tuple
def ticks(rank, stages, m):
    does = {rank + i: f"F{i}" for i in range(m)}
    end = 2 * (m + stages - 1)
    does |= {end - 1 - rank - i: f"B{i}" for i in range(m)}
    return tuple(does.get(tick, "idle") for tick in range(end))
