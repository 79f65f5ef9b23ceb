def order(sizes, sent, machine):
    """By bytes or by size: whichever keeps more bytes in the innermost dimension."""
    rules = sorted(sizes, key=sent.get), sorted(sizes, key=sizes.get, reverse=True)
    return max(rules, key=lambda names: sent[names[-1]] * sizes[names[-1]])
