# %% wrong: activations are divided
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = weights if way == "kept" else sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        return 4 * weights / world_size + gathered + kept / world_size <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% wrong: freed after forward always
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        return 4 * weights / world_size + gathered + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% wrong: nothing is gathered
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        return 4 * weights / world_size + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% wrong: one recomputed block stays whole
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


# %% wrong: recomputed keeps nothing
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = weights if way == "kept" else sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"]
        kept += 0 if way == "recomputed" else n * sizes[name]
        return 4 * weights / world_size + gathered + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% right: subtracted block by block
def most_blocks(budget, way, sizes, world_size, blocks=0):
    """Pay for the rest, then for a block at a time, until the money is gone."""
    if blocks == 0:
        budget -= sizes.pop("rest") * (4 / world_size + 1)
        budget -= sizes.pop("activations of the rest")
        if way != "kept":
            budget -= sizes["block"]
    price = sizes["block"] * (4 / world_size + (way == "kept"))
    price += sizes[("activations" if way != "recomputed" else "input") + " of a block"]
    if price > budget:
        return blocks
    return most_blocks(budget - price, way, sizes, world_size, blocks + 1)
