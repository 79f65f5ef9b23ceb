def route(start, goal, nodes, per_node):
    best = [math.inf, None]

    def walk(at, total, steps):
        if total >= best[0] - 1e-12:
            return
        if at == goal:
            best[:] = total, steps
            return
        for step in itertools.product(ALL, ALL):
            cost = price(at, step, (nodes, per_node))
            if cost is not None and step != start and step not in steps:
                if len(steps) < 6:
                    walk(step, total + cost, [*steps, step])

    walk(start, 0.0, [])
    return best[1]
