def quick(n):
    """Both halves of the tensor go together, so a pair is one message of two pieces."""
    steps = []
    for k in reversed(range((n - 1).bit_length())):
        steps.append([(r, r ^ (1 << k), 0, 2, True) for r in range(n)])
    return steps
