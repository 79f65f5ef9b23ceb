def ticks(rank, stages, m):
    forward, backward = (["F0", "F1", "F2"], ["B2", "B1", "B0"])
    before, between = ["idle"] * rank, ["idle"] * 2 * (stages - 1 - rank)
    return before + forward + between + backward + before
