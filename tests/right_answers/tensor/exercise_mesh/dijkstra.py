import heapq


def route(start, goal, nodes, per_node):
    sizes, seen, heap, turn = (nodes, per_node), set(), [(0.0, 0, start, [])], 0
    while heap:
        cost, _, at, way = heapq.heappop(heap)
        if at == goal:
            return way
        if at in seen:
            continue
        seen.add(at)
        for new in itertools.product(ALL, ALL):
            step = price(at, new, sizes)
            if step is not None and new not in seen:
                turn += 1
                heapq.heappush(heap, (cost + step, turn, new, [*way, list(new)]))
