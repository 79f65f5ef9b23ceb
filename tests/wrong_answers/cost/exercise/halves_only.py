def quick(n):
    distances = [2**k for k in range(n.bit_length() - 1)]
    return [
        [Message(r, r ^ d, r & 1, (r & 1) + 1) for r in range(n)] for d in distances
    ]
