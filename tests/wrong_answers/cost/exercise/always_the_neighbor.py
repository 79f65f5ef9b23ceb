def quick(n):
    return [
        [Message(r, r ^ 1, 0, 1) for r in range(n)] for _ in range(n.bit_length() - 1)
    ]
