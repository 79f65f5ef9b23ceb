def stay(unit_bytes, room):
    return [True] * len(unit_bytes)
