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
