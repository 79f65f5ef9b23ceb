def route(start, goal, nodes, per_node):
    whole, cut = Replicate(), Shard(0)
    if start == (Partial(), Partial()) and goal == (whole, whole):
        return [(Partial(), cut), (whole, cut), goal]
    steps = [(start[0], goal[1]), goal]
    return [
        step for at, step in zip([start, *steps], steps, strict=False) if step != at
    ]
