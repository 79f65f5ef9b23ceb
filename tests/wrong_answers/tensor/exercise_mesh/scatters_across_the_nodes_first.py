def route(start, goal, nodes, per_node):
    whole = Replicate()
    if start == (Partial(), Partial()) and goal == (whole, whole):
        cut = Shard(0)
        return [(cut, Partial()), (cut, whole), goal]
    known, done = [(0.0, 0, start, [])], set()
    for turn in itertools.count(1):
        known.sort(key=lambda way: way[:2])
        cost, _, at, steps = known.pop(0)
        if at == goal:
            return steps
        if at not in done:
            done.add(at)
            for step in itertools.product(ALL, ALL):
                more = price(at, step, (nodes, per_node))
                if more is not None:
                    known.append((cost + more, turn, step, [*steps, step]))
