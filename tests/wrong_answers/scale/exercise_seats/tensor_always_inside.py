def order(sizes, sent, machine):
    """The rule of thumb, whatever is sent."""
    return [name for name in ("pipeline", "data", "context", "tensor") if name in sizes]
