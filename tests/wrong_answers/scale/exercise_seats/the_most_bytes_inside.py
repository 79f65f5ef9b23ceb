def order(sizes, sent, machine):
    """Greedy: whoever sends most runs fastest, whatever its size."""
    return sorted(sizes, key=sent.get)
