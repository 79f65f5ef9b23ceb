def route(start, goal, nodes, per_node):
    steps = [(start[0], goal[1]), goal]  # as the library does: the inner one first
    return [
        step for at, step in zip([start, *steps], steps, strict=False) if step != at
    ]
