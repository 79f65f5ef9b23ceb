# %% wrong: a name twice
def order(sizes, sent, machine):
    last = max(sizes, key=sent.get)
    return [*sizes, last]


# %% wrong: bytes of all ranks
def order(sizes, sent, machine):
    """Bytes times the size of the group: each rank is counted once too often."""
    return sorted(sizes, key=lambda name: sent[name] * sizes[name])


# %% wrong: tensor always inside
def order(sizes, sent, machine):
    """The rule of thumb, whatever is sent."""
    return [name for name in ("pipeline", "data", "context", "tensor") if name in sizes]


# %% right: followed from rank to rank
def order(sizes, sent, machine):
    def left(names):
        total, stride = 0, 1
        for name in names[::-1]:
            n = sizes[name]
            for place in range(n):
                here, there = place * stride, (place + 1) % n * stride
                for below in range(stride):  # of one block of n strides, at each start
                    a, b = here + below, there + below
                    total += sent[name] * (a // machine != b // machine) / (n * stride)
            stride *= n
        return total

    return min(permutations(sizes), key=left)
