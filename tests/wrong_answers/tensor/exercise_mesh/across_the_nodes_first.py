def route(start, goal, nodes, per_node):
    steps = [(goal[0], start[1]), goal]
    return [
        step for at, step in zip([start, *steps], steps, strict=False) if step != at
    ]
