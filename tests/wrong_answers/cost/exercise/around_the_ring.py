def quick(n):
    half = [
        [Message(r, (r + 1) % n, (r - s) % n, (r - s) % n + 1) for r in range(n)]
        for s in range(n - 1)
    ]
    back = [[Message(b, a, i, j, False) for a, b, i, j, _ in step] for step in half]
    return half + back[::-1]
