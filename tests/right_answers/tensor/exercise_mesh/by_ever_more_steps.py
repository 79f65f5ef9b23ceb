def route(start, goal, nodes, per_node):
    sizes, every = (nodes, per_node), list(itertools.product(ALL, ALL))
    prices = {(a, b): price(a, b, sizes) for a in every for b in every}
    ways, best = [(0.0, [start])], {start: (0.0, [start])}
    while ways:
        longer = []
        for cost, way in ways:
            for step in every:
                if (more := prices[way[-1], step]) is None:
                    continue
                found = cost + more, [*way, step]
                if step not in best or found[0] < best[step][0] - 1e-12:
                    best[step] = found
                    longer.append(found)
        ways = longer
    return best[goal][1][1:]
