def stay(unit_bytes, room):
    kept = {0: []}  # bytes that stay so far: which ones
    for size in unit_bytes:
        here = {total: keep for total, keep in kept.items() if total + size <= room}
        kept = {total: [*keep, False] for total, keep in here.items()}
        kept |= {total + size: [*keep, True] for total, keep in here.items()}
    return kept[max(kept)]
