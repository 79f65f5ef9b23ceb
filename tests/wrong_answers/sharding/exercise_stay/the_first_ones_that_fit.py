def stay(unit_bytes, room):
    keep = []
    for size in unit_bytes:
        keep.append(size <= room)
        room -= size * keep[-1]
    return keep
