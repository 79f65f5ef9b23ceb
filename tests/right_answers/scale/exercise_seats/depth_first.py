def order(sizes, sent, machine):
    def best(left, stride):
        if not left:
            return 0.0, ()
        found = []
        for name in left:
            inside = max(machine // stride, 1)
            leaves = 0 if inside >= sizes[name] else sizes[name] // inside / sizes[name]
            rest = {n for n in left if n != name}
            cost, names = best(rest, stride * sizes[name])
            found.append((cost + leaves * sent[name], (*names, name)))
        return min(found)

    return best(set(sizes), 1)[1]
