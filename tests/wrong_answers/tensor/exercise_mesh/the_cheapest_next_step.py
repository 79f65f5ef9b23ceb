def route(start, goal, nodes, per_node):
    at, steps, seen = start, [], {start}
    while at != goal and len(steps) < 16:  # greedy: never looks further than a step
        nexts = [step for step in itertools.product(ALL, ALL) if step not in seen]
        costs = {s: price(at, s, (nodes, per_node)) for s in nexts}
        costs = {s: cost for s, cost in costs.items() if cost is not None}
        if not costs:
            break
        at = goal if goal in costs else min(costs, key=costs.get)
        seen.add(at)
        steps.append(at)
    return steps
