def quick(n):
    if n == 1:
        return []
    far = [Message(r, (r + n // 2) % n, 0, 1) for r in range(n)]
    near = [
        [Message(m.source + a, m.target + a, 0, 1) for a in (0, n // 2) for m in step]
        for step in quick(n // 2)
    ]
    return [far, *near]
