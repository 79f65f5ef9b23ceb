# %% wrong: fewest steps
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


# %% wrong: only the two sums
def route(start, goal, nodes, per_node):
    whole, cut = Replicate(), Shard(0)
    if start == (Partial(), Partial()) and goal == (whole, whole):
        return [(Partial(), cut), (whole, cut), goal]
    steps = [(start[0], goal[1]), goal]
    return [
        step for at, step in zip([start, *steps], steps, strict=False) if step != at
    ]


# %% wrong: prices of one mesh for all
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


# %% wrong: straight to the goal
def route(start, goal, nodes, per_node):
    return [goal]


# %% wrong: the cheapest next step
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


# %% wrong: three steps at most
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


# %% right: walked back
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
