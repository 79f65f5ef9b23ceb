def order(sizes, sent, machine):
    """The last name runs fastest, not the first."""
    return sorted(sizes, key=sent.get, reverse=True)
