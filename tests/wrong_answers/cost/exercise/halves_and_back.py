def quick(n):
    steps, spans = [], [(0, n)] * n
    for distance in (2**k for k in range(n.bit_length() - 1)):
        steps.append([])
        for r, (first, last) in enumerate(spans):
            middle = (first + last) // 2
            halves = [(first, middle), (middle, last)]
            mine = bool(r & distance)
            steps[-1].append(Message(r, r ^ distance, *halves[not mine]))
            spans[r] = halves[mine]
    back = [[Message(b, a, i, j, False) for a, b, i, j, _ in step] for step in steps]
    return steps + back[::-1]
