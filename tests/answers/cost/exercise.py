# %% wrong: a tree and back
def quick(n):
    distances = [2**k for k in range(n.bit_length() - 1)]
    half = [[Message(r, r - d, 0, 1) for r in range(d, n, 2 * d)] for d in distances]
    back = [[Message(b, a, 0, 1, False) for a, b, *_ in step] for step in half]
    return half + back[::-1]


# %% wrong: all steps at once
def quick(n):
    distances = [2**k for k in range(n.bit_length() - 1)]
    return [[Message(r, r ^ d, 0, 1) for r in range(n) for d in distances]]


# %% wrong: always the neighbor
def quick(n):
    return [
        [Message(r, r ^ 1, 0, 1) for r in range(n)] for _ in range(n.bit_length() - 1)
    ]


# %% wrong: around the ring
def quick(n):
    half = [
        [Message(r, (r + 1) % n, (r - s) % n, (r - s) % n + 1) for r in range(n)]
        for s in range(n - 1)
    ]
    back = [[Message(b, a, i, j, False) for a, b, i, j, _ in step] for step in half]
    return half + back[::-1]


# %% wrong: distances from two
def quick(n):
    distances = [2**k for k in range(1, n.bit_length())]
    return [[Message(r, r ^ d, 0, 1) for r in range(n)] for d in distances]


# %% wrong: distances one two three
def quick(n):
    return [
        [Message(r, (r + d) % n, 0, 1) for r in range(n)]
        for d in range(1, n.bit_length())
    ]


# %% wrong: nothing is sent
def quick(n):
    return [[Message(0, 1, 0, 0)]]


# %% right: far partners first
def quick(n):
    if n == 1:
        return []
    far = [Message(r, (r + n // 2) % n, 0, 1) for r in range(n)]
    near = [
        [Message(m.source + a, m.target + a, 0, 1) for a in (0, n // 2) for m in step]
        for step in quick(n // 2)
    ]
    return [far, *near]
