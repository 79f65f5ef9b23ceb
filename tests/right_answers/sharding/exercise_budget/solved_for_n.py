def most_blocks(budget, way, sizes, world_size):
    shares = 4 / world_size
    each, rest = shares * sizes["block"], (1 + shares) * sizes["rest"]
    rest += sizes["activations of the rest"]
    if way == "kept":
        each += sizes["block"]
    else:
        rest += sizes["block"]
    each += sizes["input of a block" if way[0] == "r" else "activations of a block"]
    return int((budget - rest) / each + 1e-9)
