"""The number of stages is taken from the picture."""


def ticks(rank, stages, m):
    half = ["idle"] * rank + [f"F{i}" for i in range(m)] + ["idle"] * (2 - rank)
    return half + [tick.replace("F", "B") for tick in reversed(half)]
