def quick(n):
    distances = [2**k for k in range(n.bit_length() - 1)]
    return [[Message(r, r ^ d, 0, 1) for r in range(n) for d in distances]]
