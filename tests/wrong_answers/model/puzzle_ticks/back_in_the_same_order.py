def ticks(rank, stages, m):
    forward, backward = ([f"{way}{i}" for i in range(m)] for way in "FB")
    before, between = ["idle"] * rank, ["idle"] * 2 * (stages - 1 - rank)
    return before + forward + between + backward + before
