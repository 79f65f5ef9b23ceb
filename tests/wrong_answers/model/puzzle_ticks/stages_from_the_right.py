def ticks(rank, stages, m):
    forward, backward = ([f"{way}{i}" for i in range(m)] for way in "FB")
    before, between = ["idle"] * (stages - 1 - rank), ["idle"] * 2 * rank
    return before + forward + between + backward[::-1] + before
