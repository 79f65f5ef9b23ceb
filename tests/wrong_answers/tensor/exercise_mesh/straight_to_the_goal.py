def route(start, goal, nodes, per_node):
    return [goal]
