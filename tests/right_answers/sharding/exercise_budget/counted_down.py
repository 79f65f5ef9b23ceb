def most_blocks(budget, way, sizes, world_size):
    block, rest, of_block, of_rest, given = sizes.values()
    for n in range(50, 0, -1):
        held = 4 * (rest + n * block)
        lent = world_size * (rest + block * (n if way == "kept" else 1))
        kept = of_rest + n * (given if way == "recomputed" else of_block)
        if held + lent + world_size * kept <= world_size * budget:
            return n
    return 0
