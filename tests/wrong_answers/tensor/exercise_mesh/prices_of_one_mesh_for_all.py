def route(start, goal, nodes, per_node):
    known, done = [(0.0, 0, start, [])], set()
    for turn in itertools.count(1):
        known.sort(key=lambda way: way[:2])
        cost, _, at, steps = known.pop(0)
        if at == goal:
            return steps
        if at not in done:
            done.add(at)
            for step in itertools.product(ALL, ALL):
                more = price(at, step, (2, 2))
                if more is not None:
                    more += 1e-3 * len(steps) + (step[0] != at[0])
                    known.append((cost + more, turn, step, [*steps, step]))
