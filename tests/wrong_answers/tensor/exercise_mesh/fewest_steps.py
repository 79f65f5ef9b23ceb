def route(start, goal, nodes, per_node):
    ways = {start: (0, [])}
    for _ in range(16):
        for old, new in itertools.product(list(ways), itertools.product(ALL, ALL)):
            more = price(old, new, (nodes, per_node))
            if more is not None:
                cost = ways[old][0] + 1
                if new not in ways or cost < ways[new][0]:
                    ways[new] = cost, [*ways[old][1], new]
    return ways[goal][1]
