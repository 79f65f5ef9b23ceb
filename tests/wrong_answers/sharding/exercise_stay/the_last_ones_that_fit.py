def stay(unit_bytes, room):
    keep = []
    for size in reversed(unit_bytes):
        keep.insert(0, size <= room)
        room -= size * keep[0]
    return keep
