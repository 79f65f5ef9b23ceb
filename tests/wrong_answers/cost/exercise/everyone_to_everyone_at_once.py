def quick(n):
    return [[Message(a, b, 0, 1) for a in range(n) for b in range(n) if a != b]]
