def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = weights if way == "kept" else sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        # The block that is recomputed: real, but no part of this lesson's table.
        kept += sizes["activations of a block"] * (way == "recomputed")
        return 4 * weights / world_size + gathered + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n
