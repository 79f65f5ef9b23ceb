def order(sizes, sent, machine):
    tried = permutations(sizes)
    return min(tried, key=lambda names: over_the_wire(names, sizes, sent, machine))
