def quick(n):
    return [
        [Message(r, (r + d) % n, 0, 1) for r in range(n)]
        for d in range(1, n.bit_length())
    ]
