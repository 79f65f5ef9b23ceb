def order(sizes, sent, machine):
    last = max(sizes, key=sent.get)
    return [*sizes, last]
