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
