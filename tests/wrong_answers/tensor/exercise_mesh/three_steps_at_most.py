def route(start, goal, nodes, per_node):
    best = None
    for count in range(3):  # then give up: the cheapest way may have four
        for steps in itertools.product(itertools.product(ALL, ALL), repeat=count):
            at, total, steps = start, 0.0, [*steps, goal]
            for step in steps:
                cost = price(at, step, (nodes, per_node))
                if cost is None:
                    break
                at, total = step, total + cost
            else:
                if best is None or total < best[0]:
                    best = total, steps
    return [] if start == goal else best[1]
