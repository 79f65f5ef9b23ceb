def ticks(rank, stages, m):
    before, between = ["idle"] * rank, ["idle"] * 2 * (stages - 1 - rank)
    return before + sum([[f"F{i}", *between, f"B{i}"] for i in range(m)], []) + before
