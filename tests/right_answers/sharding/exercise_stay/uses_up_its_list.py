def stay(unit_bytes, room):
    """What stays in front leaves less room behind: tried one unit after the other."""
    if not unit_bytes:
        return []
    first = unit_bytes.pop(0)
    if first > room:
        return None
    ways = []
    for stays in (False, True):
        rest = stay(unit_bytes.copy(), room - first * stays)
        if rest is not None:
            ways.append([stays, *rest])
    sizes = [first, *unit_bytes]
    unit_bytes.clear()

    def kept(keep):
        return sum(size for size, stays in zip(sizes, keep, strict=True) if stays)

    return max(ways, key=kept, default=None)
