# %% wrong: a name twice
def order(sizes, sent, machine):
    last = max(sizes, key=sent.get)
    return [*sizes, last]


# %% wrong: an order by chance
def order(sizes, sent, machine):
    return random.sample(list(sizes), len(sizes))


# %% wrong: bytes of all ranks
def order(sizes, sent, machine):
    """Bytes times the size of the group: each rank is counted once too often."""
    return sorted(sizes, key=lambda name: sent[name] * sizes[name])


# %% wrong: leaves or not
def order(sizes, sent, machine):
    """A group is either inside a machine, or all of it is on the wire."""
    from itertools import permutations

    def wire(names):
        stride, total = 1, 0
        for name in reversed(names):
            stride *= sizes[name]
            total += sent[name] * (stride > machine)
        return total

    return list(min(permutations(sizes), key=wire))


# %% wrong: only whats inside a machine
def order(sizes, sent, machine):
    """The innermost is the largest that fits; the others in any order."""
    fits = [name for name in sizes if sizes[name] <= machine]
    last = max(fits or sizes, key=lambda name: sent[name])
    return [name for name in sizes if name != last] + [last]


# %% wrong: tensor always inside
def order(sizes, sent, machine):
    """The rule of thumb, whatever is sent."""
    return [name for name in ("pipeline", "data", "context", "tensor") if name in sizes]


# %% wrong: the better of two rules
def order(sizes, sent, machine):
    """By bytes or by size: whichever keeps more bytes in the innermost dimension."""
    rules = sorted(sizes, key=sent.get), sorted(sizes, key=sizes.get, reverse=True)
    return max(rules, key=lambda names: sent[names[-1]] * sizes[names[-1]])


# %% wrong: the most bytes inside
def order(sizes, sent, machine):
    """Greedy: whoever sends most runs fastest, whatever its size."""
    return sorted(sizes, key=sent.get)


# %% wrong: the most bytes outside
def order(sizes, sent, machine):
    """The last name runs fastest, not the first."""
    return sorted(sizes, key=sent.get, reverse=True)


# %% wrong: the smallest inside
def order(sizes, sent, machine):
    """Small groups fit into a machine: the bytes do not count."""
    return sorted(sizes, key=sizes.get, reverse=True)


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
