def route(start, goal, nodes, per_node):
    # Every pair's best way so far, bettered until nothing changes.
    ways = {start: (0.0, [])}
    changed = True
    while changed:
        changed = False
        for old, new in itertools.product(list(ways), itertools.product(ALL, ALL)):
            if (cost := price(old, new, (nodes, per_node))) is not None:
                total = ways[old][0] + cost
                if new not in ways or total < ways[new][0] - 1e-12:
                    ways[new], changed = (total, [*ways[old][1], new]), True
    return ways[goal][1]
