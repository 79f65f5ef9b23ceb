def order(sizes, sent, machine):
    """Small groups fit into a machine: the bytes do not count."""
    return sorted(sizes, key=sizes.get, reverse=True)
