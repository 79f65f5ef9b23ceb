def quick(n):
    distances = [2**k for k in range(n.bit_length() - 1)]
    half = [[Message(r, r - d, 0, 1) for r in range(d, n, 2 * d)] for d in distances]
    back = [[Message(b, a, 0, 1, False) for a, b, *_ in step] for step in half]
    return half + back[::-1]
